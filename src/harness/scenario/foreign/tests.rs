//! Peers that are honest, wrong, cheating, slow, silent or speak garbage, and folders.

use super::peer::{PeerOutput, PeerSample};
use super::process::{Account, PeerProcess, check};
use super::*;
use crate::harness::scenario::{Point, PrefillUse};
use std::path::Path;

/// Of `weights` and `{}`, by coreutils.
const FOLDER: &str = "4d29798c6e59eb7dfc2b375b8998040ed29cf33c98038b41e9717a6c37f5dad7";
const PLACE: Point = Point { prompt_tokens: 4, decode_tokens: 2, sequences: 1 };

fn sample() -> PeerSample {
    PeerSample {
        prefill_ms: 20.0,
        decode_ms: 60.0,
        prompt_tokens: 4,
        decode_tokens: 2,
        tokens: Some(vec![1, 2, 3]),
        logits: None,
    }
}

#[test]
fn an_honest_forward_is_taken_and_its_tokens_are_digested() {
    let found = check(&sample(), PLACE, PeerOutput::Tokens, 84.0).unwrap();
    assert_eq!((found.prefill_ms, found.decode_ms), (20.0, 60.0));
    let other = PeerSample { tokens: Some(vec![1, 2, 4]), ..sample() };
    let other = check(&other, PLACE, PeerOutput::Tokens, 84.0).unwrap();
    assert_ne!(found.tokens, other.tokens);
    let none = PeerSample { tokens: None, ..sample() };
    assert_eq!(check(&none, PLACE, PeerOutput::None, 84.0).unwrap().tokens, "none");
    let logits = PeerSample { tokens: None, logits: Some(vec![0.5, -1.0]), ..sample() };
    assert!(check(&logits, PLACE, PeerOutput::Logits, 84.0).is_ok());
}

#[test]
fn what_a_forward_cannot_be_is_refused() {
    let cases: [(&str, PeerSample, PeerOutput); 9] = [
        ("instead of 4 and 2", PeerSample { prompt_tokens: 3, ..sample() }, PeerOutput::Tokens),
        ("instead of 4 and 2", PeerSample { decode_tokens: 1, ..sample() }, PeerOutput::Tokens),
        ("finite and positive", PeerSample { decode_ms: f64::NAN, ..sample() }, PeerOutput::Tokens),
        ("finite and positive", PeerSample { prefill_ms: 0.0, ..sample() }, PeerOutput::Tokens),
        ("for a reply that took", PeerSample { decode_ms: 70.0, ..sample() }, PeerOutput::Tokens),
        (
            "2 tokens instead of 3",
            PeerSample { tokens: Some(vec![1, 2]), ..sample() },
            PeerOutput::Tokens,
        ),
        ("gave another", PeerSample { tokens: None, ..sample() }, PeerOutput::Tokens),
        ("gave another", sample(), PeerOutput::None),
        (
            "not finite",
            PeerSample { tokens: None, logits: Some(vec![f32::NAN]), ..sample() },
            PeerOutput::Logits,
        ),
    ];
    for (words, sample, output) in cases {
        let message = check(&sample, PLACE, output, 84.0).unwrap_err();
        assert!(message.contains(words), "expected {words}, found {message}");
    }
}

#[test]
fn a_peer_accounts_for_its_time() {
    // Computing 100 ms and reporting 5.
    let mut cheat = Account::default();
    let message = cheat.add(5.0, 100.0).unwrap_err();
    assert!(message.contains("accounts for 5.0 ms of the 100.0 ms"), "{message}");
    // Held up once among many.
    let mut honest = Account::default();
    for i in 0..20 {
        honest.add(80.0, if i == 10 { 140.0 } else { 84.0 }).unwrap();
    }
    // A small cheat shows as well.
    let mut small = Account::default();
    assert!((0..20).any(|_| small.add(60.0, 100.0).is_err()));
}

/// A peer written in shell: what it answers to a load and to a forward.
#[cfg(unix)]
fn shell(load: &str, forward: &str) -> Vec<String> {
    let script = format!(
        "while IFS= read -r line; do case \"$line\" in \
         *'\"load\"'*) {load};; \
         *'\"forward\"'*) {forward};; \
         *) echo '{{\"reply\":\"finished\",\"host_bytes\":4096}}'; exit 0;; \
         esac; done"
    );
    ["sh", "-c", &script].map(str::to_owned).to_vec()
}

#[cfg(unix)]
const LOADED: &str = r#"echo '{"reply":"loaded","protocol":1,"name":"shell 1","output":"tokens"}'"#;
#[cfg(unix)]
const FORWARDED: &str = r#"sleep 0.2; echo '{"reply":"forwarded","prefill_ms":50,"decode_ms":150,"prompt_tokens":4,"decode_tokens":2,"tokens":[7,8,9]}'"#;

#[cfg(unix)]
fn start(command: &[String]) -> Result<(PeerProcess, PeerRecord, Vec<String>), String> {
    PeerProcess::start(
        command,
        Path::new(""),
        2,
        (vec![PLACE], vec![vec![5; 4]]),
        PrefillUse::Timed,
        1,
    )
}

#[cfg(unix)]
#[test]
fn an_honest_peer_is_loaded_measured_and_finished() {
    // A busy machine may hold a shell up for longer than its account allows.
    let found = (0..10).find_map(|_| start(&shell(LOADED, FORWARDED)).ok());
    let (peer, record, tokens) = found.expect("a peer");
    assert_eq!(record.name.as_deref(), Some("shell 1"));
    assert_eq!((record.output, tokens.len()), (Some(PeerOutput::Tokens), 1));
    assert_eq!(peer.finish().unwrap(), Some(4096));
}

#[cfg(unix)]
#[test]
fn a_peer_that_misbehaves_is_given_up_by_name_of_the_mistake() {
    let other_protocol = r#"echo '{"reply":"loaded","protocol":2,"name":"x","output":"none"}'"#;
    let extra = r#"echo '{"reply":"loaded","protocol":1,"name":"x","output":"none","speed":9}'"#;
    let fast = r#"sleep 0.2; echo '{"reply":"forwarded","prefill_ms":1,"decode_ms":2,"prompt_tokens":4,"decode_tokens":2,"tokens":[7,8,9]}'"#;
    let boast = r#"echo '{"reply":"forwarded","prefill_ms":50,"decode_ms":1e9,"prompt_tokens":4,"decode_tokens":2,"tokens":[7,8,9]}'"#;
    let lazy = r#"echo '{"reply":"forwarded","prefill_ms":1,"decode_ms":1,"prompt_tokens":1,"decode_tokens":1,"tokens":[7,8]}'"#;
    let cases = [
        ("speaks protocol 2", shell(other_protocol, FORWARDED)),
        ("unknown field `speed`", shell(extra, FORWARDED)),
        ("answered a load with `forwarded`", shell(FORWARDED, FORWARDED)),
        ("is not understood", shell("echo hello", FORWARDED)),
        ("is not understood", shell(LOADED, "printf '\\033[1mloading…\\n'")),
        (
            "failed: out of memory",
            shell(r#"echo '{"reply":"failed","message":"out of memory"}'"#, ""),
        ),
        ("ended", shell("exit 3", FORWARDED)),
        ("ended", shell(LOADED, "kill -9 $$")),
        ("accounts for 3.0 ms", shell(LOADED, fast)),
        ("for a reply that took", shell(LOADED, boast)),
        ("instead of 4 and 2", shell(LOADED, lazy)),
        ("could not be started", vec!["./no-such-program".into()]),
        ("NO_SUCH_PEER, which is not set", vec!["$NO_SUCH_PEER".into()]),
        ("the command is empty", Vec::new()),
    ];
    for (words, command) in cases {
        let message = start(&command).map(|_| ()).expect_err(words);
        assert!(message.contains(words), "expected {words}, found {message}");
    }
}

#[test]
fn the_digest_of_a_folder_is_what_sha256sum_gives() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("model.safetensors"), "weights").unwrap();
    std::fs::write(folder.path().join("config.json"), "{}").unwrap();
    let digest = folder_digest(folder.path()).unwrap();
    std::fs::write(folder.path().join("README.md"), "anything").unwrap();
    assert_eq!(folder_digest(folder.path()).unwrap(), digest, "other files do not count");
    // sha256sum config.json model.safetensors | sha256sum
    assert_eq!(digest.to_string(), FOLDER);
    std::fs::write(folder.path().join("config.json"), "{ }").unwrap();
    assert_ne!(folder_digest(folder.path()).unwrap(), digest);
    assert!(folder_digest(Path::new("no/such/folder")).is_err());
    assert!(folder_digest(tempfile::tempdir().unwrap().path()).is_err());
}

#[test]
fn a_peer_is_told_when_its_prompt_need_not_run_again() {
    let forward = |prefill| PeerAsk::Forward { prompt: vec![5], decode_tokens: 2, prefill };
    let text = |prefill| serde_json::to_string(&forward(prefill)).unwrap();
    assert_eq!(text(PrefillUse::Timed), r#"{"ask":"forward","prompt":[5],"decode_tokens":2}"#);
    assert!(text(PrefillUse::Once).ends_with(r#","prefill":"once"}"#));
}
