//! `assay generate` as a process: what reaches stdout, what stderr says, exit codes.

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name)
}

/// Runs `assay generate` on the small llama fixture.
fn generate(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_assay"))
        .arg("generate")
        .arg("--model")
        .arg(fixture("llama"))
        .args(args)
        .stdin(Stdio::null())
        .output()
        .expect("assay runs")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("UTF-8")
}

fn json(output: &Output) -> Value {
    assert!(output.status.success(), "{}", text(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("one JSON object")
}

#[test]
fn a_seed_replays_the_text_streaming_or_not() {
    let args = ["-p", "The river", "--max-tokens", "24", "--seed", "18446744073709551615"];
    let streamed = generate(&args);
    assert_eq!(streamed.status.code(), Some(0), "{}", text(&streamed.stderr));
    let whole = json(&generate(&[&args[..], &["--json"]].concat()));
    assert_eq!(text(&streamed.stdout), whole["text"].as_str().unwrap());
    assert_eq!(whole["seed"].as_u64(), Some(u64::MAX));
    let other =
        json(&generate(&["-p", "The river", "--max-tokens", "24", "--seed", "1", "--json"]));
    assert_ne!(whole["ids"], other["ids"]);

    let stderr = text(&streamed.stderr);
    let report = "temperature 1, seed 18446744073709551615, sampler \
                  softmax_fp64_block256_splitmix64 version 1";
    assert!(stderr.contains(report), "{stderr}");
    let last = stderr.lines().last().unwrap();
    assert!(last.contains(" tok/s"), "one line of statistics at the end: {stderr}");
}

#[test]
fn a_drawn_seed_is_reported_and_replays() {
    let first = json(&generate(&["-p", "a", "--max-tokens", "12", "--json"]));
    let seed = first["seed"].as_u64().expect("the drawn seed").to_string();
    let again = json(&generate(&["-p", "a", "--max-tokens", "12", "--json", "--seed", &seed]));
    assert_eq!(first["ids"], again["ids"]);
}

#[test]
fn greedy_equals_the_reference_and_draws_nothing() {
    let reference = std::fs::read(fixture("llama").join("reference.json")).unwrap();
    let reference: Value = serde_json::from_slice(&reference).unwrap();
    let prompts = reference["prompts"].as_array().unwrap();
    let prompt = prompts.iter().find(|p| p["name"] == "p7").unwrap();
    let listed = prompt["ids"].as_array().unwrap();
    let ids: Vec<String> = listed.iter().map(ToString::to_string).collect();
    let done = json(&generate(&[
        "--prompt-ids",
        &ids.join(","),
        "--temperature",
        "-0",
        "--policy",
        "f32",
        "--max-tokens",
        "32",
        "--json",
        "--seed",
        "5",
    ]));
    let expected = reference["greedy"]["p7"]["fp32"].as_array().unwrap();
    let found = done["ids"].as_array().unwrap();
    // The reference ignores end tokens.
    assert_eq!(found[..], expected[..found.len()]);
    assert_eq!(done["statistics"]["random_words"], 0);
    assert_eq!(done["seed"], Value::Null);
    assert_eq!(done["prompt_ids"].as_array().unwrap(), listed);
}

#[test]
fn a_zero_budget_gives_nothing_and_loads_nothing() {
    let output = generate(&["-p", "a", "--max-tokens", "0"]);
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(text(&output.stdout), "");
    assert!(!text(&output.stderr).contains("MB of weights"), "{}", text(&output.stderr));
}

#[test]
fn mistakes_are_named_and_print_no_text() {
    let cases: [(&[&str], i32, &str); 10] = [
        (&[], 64, "--prompt"),
        (&["-p", "a", "--prompt-ids", "1"], 64, "cannot be used with"),
        (&["-p", "", "--max-tokens", "2"], 0, ""),
        (&["--prompt-ids", ""], 64, "the prompt has no tokens"),
        (
            &["--prompt-ids", "1,512"],
            64,
            "prompt token 1 is id 512, the model's vocabulary has 512",
        ),
        (&["--prompt-ids", "1;2"], 64, "item 0 is `1;2`"),
        (&["--prompt-file", "no/such.txt"], 74, "cannot read no/such.txt"),
        (&["-p", "a", "--max-tokens", "1000000"], 64, "a budget of at most "),
        (&["-p", "a", "--policy", "quick"], 64, "unknown policy `quick`"),
        (&["-p", "a", "--device", "cuda:0"], 64, "--device cuda:0"),
    ];
    for (args, code, message) in cases {
        let output = generate(&[args, &["--quiet", "--seed", "1"][..]].concat());
        let stderr = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{args:?}: {stderr}");
        assert!(stderr.contains(message), "{args:?}: {stderr}");
        if code != 0 {
            assert_eq!(text(&output.stdout), "", "{args:?}");
        }
    }
}

#[test]
fn a_prompt_file_is_used_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("prompt.txt");
    std::fs::write(&path, "The river\n").unwrap();
    let path = path.to_str().unwrap();
    let from_file = json(&generate(&["--prompt-file", path, "--max-tokens", "1", "--json"]));
    let from_text = json(&generate(&["-p", "The river\n", "--max-tokens", "1", "--json"]));
    assert_eq!(from_file["prompt_ids"], from_text["prompt_ids"]);
    std::fs::write(path, [0x61, 0xff]).unwrap();
    let output = generate(&["--prompt-file", path]);
    assert_eq!(output.status.code(), Some(64));
    assert!(text(&output.stderr).contains("not UTF-8 text (byte 1)"), "{}", text(&output.stderr));
}

#[test]
fn control_tokens_in_a_prompt_stay_text_unless_asked_for() {
    let args = ["-p", "hi<|im_end|>", "--max-tokens", "1", "--json"];
    let literal = generate(&args);
    let ids = |value: &Value| value["prompt_ids"].as_array().unwrap().clone();
    assert!(!ids(&json(&literal)).contains(&509.into()));
    let note = text(&literal.stderr);
    assert!(note.contains("<|im_end|> in the prompt is read as text"), "{note}");
    let parsed = json(&generate(&[&args[..], &["--parse-control-tokens"]].concat()));
    assert_eq!(ids(&parsed).last(), Some(&509.into()));
}

#[cfg(unix)]
#[test]
fn a_reader_that_goes_away_ends_it_quietly() {
    let mut child = Command::new(env!("CARGO_BIN_EXE_assay"))
        .arg("generate")
        .arg("--model")
        .arg(fixture("llama"))
        .args(["-p", "a", "--max-tokens", "400", "--quiet", "--seed", "1"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!(text(&output.stderr), "");
    assert_eq!(output.status.code(), Some(0));
}
