//! Ctrl-C: what was generated is kept, the command says so and exits with 130.
#![cfg(unix)]

use crate::{file, fixture, text};
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

fn started(args: &[&str], model: &Path) -> Child {
    Command::new(env!("CARGO_BIN_EXE_assay"))
        .args(args)
        .arg("--model")
        .arg(model)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

fn interrupt(child: &Child) {
    let killed = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(killed.success());
}

/// Reads stderr up to a line that begins like this.
fn wait_for(stderr: &mut impl BufRead, beginning: &str) {
    let mut line = String::new();
    while !line.starts_with(beginning) {
        line.clear();
        assert!(stderr.read_line(&mut line).unwrap() > 0, "a line begins with `{beginning}`");
    }
}

/// Waits until a command listens to interrupts, however busy the machine is.
fn wait_until_listening(child: &Child) {
    let status = format!("/proc/{}/status", child.id());
    if !Path::new(&status).exists() {
        std::thread::sleep(Duration::from_millis(2500));
        return;
    }
    let listens = || {
        let status = std::fs::read_to_string(&status).unwrap_or_default();
        let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
        // Signal 2 is the second bit.
        caught.is_some_and(|set| u64::from_str_radix(set.trim(), 16).is_ok_and(|set| set & 2 != 0))
    };
    for _ in 0..600 {
        if listens() {
            return;
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    panic!("no interrupt is listened to after a minute");
}

/// Ctrl-C during a long prompt ends between its pieces: 130, and no text.
#[test]
fn an_interrupted_prompt_ends_cleanly() {
    let ids: Vec<String> = (0..40_000).map(|i| (i % 500).to_string()).collect();
    let (_folder, prompts) = file("long.json", &format!("{{\"long\": [{}]}}", ids.join(",")));
    let args = ["generate", "--prompts", &prompts, "--seed", "1", "--max-tokens", "9"];
    let mut child = started(&args, &fixture("qwen3"));
    let mut stderr = BufReader::new(child.stderr.take().unwrap());
    wait_for(&mut stderr, "temperature ");
    std::thread::sleep(Duration::from_millis(500));
    interrupt(&child);
    let mut rest = String::new();
    stderr.read_to_string(&mut rest).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{rest}");
    assert_eq!(text(&output.stdout), "== long\n\n");
    let last = rest.lines().last().unwrap();
    assert!(last.starts_with("1 prompt of 40000 tokens, 0 generated in "), "{rest}");
    let counted = "; 0 ended by an end token, 0 by a stop string, 0 at the budget, 1 interrupted";
    assert!(last.ends_with(counted), "{rest}");
}

/// A checkpoint of the Qwen3 fixture that has no end token.
fn endless() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for name in ["model.safetensors", "tokenizer.json"] {
        std::fs::copy(fixture("qwen3").join(name), folder.path().join(name)).unwrap();
    }
    let config = std::fs::read(fixture("qwen3").join("config.json")).unwrap();
    let mut config: serde_json::Value = serde_json::from_slice(&config).unwrap();
    config["eos_token_id"] = serde_json::Value::Null;
    std::fs::write(folder.path().join("config.json"), config.to_string()).unwrap();
    folder
}

/// The text so far, as an uninterrupted run begins it, a line of statistics, and 130.
#[test]
fn an_interrupted_text_is_kept_and_counted() {
    let endless = endless();
    let args = ["generate", "-p", "The river", "--seed", "1", "--temperature", "0.9"];
    let mut child = started(&[&args[..], &["--max-tokens", "30000"]].concat(), endless.path());
    let mut stdout = child.stdout.take().unwrap();
    let mut begun = vec![0; 64];
    stdout.read_exact(&mut begun).unwrap();
    interrupt(&child);
    stdout.read_to_end(&mut begun).unwrap();
    let Output { status, stderr, .. } = child.wait_with_output().unwrap();
    let stderr = text(&stderr);
    assert_eq!(status.code(), Some(130), "{stderr}");
    let statistics = stderr.lines().last().unwrap();
    assert!(statistics.contains(" tok/s") && statistics.ends_with("interrupted"), "{stderr}");
    assert!(!stderr.contains("error"), "{stderr}");
    let generated: usize = statistics
        .split_once(" generated")
        .and_then(|(before, _)| before.split(' ').next_back())
        .unwrap()
        .parse()
        .unwrap();
    assert!((1..30000).contains(&generated), "{statistics}");
    let budget = generated.to_string();
    let whole = started(&[&args[..], &["--max-tokens", &budget]].concat(), endless.path());
    let whole = whole.wait_with_output().unwrap();
    assert_eq!(text(&begun), text(&whole.stdout), "{statistics}");
}

/// With `--json` the object is whole, and says why it ended.
#[test]
fn an_interrupted_object_is_whole() {
    let endless = endless();
    let args = ["generate", "-p", "The river", "--seed", "1", "--json", "--max-tokens", "30000"];
    let mut child = started(&args, endless.path());
    let mut stderr = BufReader::new(child.stderr.take().unwrap());
    wait_for(&mut stderr, "temperature ");
    std::thread::sleep(Duration::from_millis(300));
    interrupt(&child);
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130));
    let done: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(done["stop"]["reason"], "interrupted");
    assert!(!done["ids"].as_array().unwrap().is_empty());
}

/// An evaluation that did not reach the end has no figures.
#[test]
fn an_interrupted_evaluation_prints_no_figures() {
    let words = std::fs::read_to_string(fixture("text/alice.txt")).unwrap().repeat(40);
    let (_folder, path) = file("long.txt", &words);
    let child = started(&["eval", "--text", &path, "--threads", "1"], &fixture("qwen3"));
    wait_until_listening(&child);
    interrupt(&child);
    let output = child.wait_with_output().unwrap();
    let stderr = text(&output.stderr);
    assert_eq!(output.status.code(), Some(130), "{stderr}");
    assert_eq!(text(&output.stdout), "");
    assert_eq!(
        stderr.lines().last(),
        Some("interrupted: nothing was measured to the end"),
        "{stderr}"
    );
}

/// A recording that is interrupted, or killed, leaves no file.
#[test]
fn an_unfinished_recording_leaves_nothing() {
    let endless = endless();
    for (signal, code) in [("-INT", Some(130)), ("-TERM", Some(130)), ("-KILL", None)] {
        let (folder, prompts) = file("prompts.json", r#"{"a": [3, 1, 4]}"#);
        let out = folder.path().join("capture.safetensors");
        let args = ["capture", "record", "--prompts", &prompts, "--greedy", "30000", "--out"];
        let args = [&args[..], &[out.to_str().unwrap(), "--device", "cpu"]].concat();
        let child = started(&args, endless.path());
        wait_until_listening(&child);
        std::thread::sleep(Duration::from_millis(300));
        let killed = Command::new("kill").args([signal, &child.id().to_string()]).status().unwrap();
        assert!(killed.success());
        let output = child.wait_with_output().unwrap();
        let stderr = text(&output.stderr);
        assert_eq!(output.status.code(), code, "{stderr}");
        if code.is_some() {
            assert_eq!(stderr.lines().last(), Some("interrupted: no capture was written"));
        }
        let left: Vec<_> = std::fs::read_dir(folder.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        assert_eq!(left, ["prompts.json"], "{signal}");
    }
}
