//! `assay capture` as a user runs it: two recordings, the walk to the first difference, and its script.

use std::path::Path;
use std::process::{Command, Output};

const ASSAY: &str = env!("CARGO_BIN_EXE_assay");

fn text(output: &Output) -> String {
    format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}

#[test]
fn the_script_of_a_first_difference_finds_it_again() {
    let folder = tempfile::tempdir().unwrap();
    let model = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/llama");
    std::fs::write(folder.path().join("prompts.json"), r#"{"a": [3, 1, 4, 1, 5, 9, 2, 6]}"#)
        .unwrap();
    let assay =
        |args: &[&str]| Command::new(ASSAY).args(args).current_dir(folder.path()).output().unwrap();
    let record = |policy: &str, out: &str| {
        let fixed =
            ["--prompts", "prompts.json", "--all-positions", "--tap", "all", "--chunk", "4"];
        let chosen = ["--device", "cpu", "--policy", policy, "--out", out];
        let model = ["capture", "record", "--model", model.to_str().unwrap()];
        let output = assay(&[&model[..], &fixed[..], &chosen[..]].concat());
        assert!(output.status.success(), "{}", text(&output));
    };
    record("f32", "left.safetensors");
    record("reference", "right.safetensors");
    record("f32", "again.safetensors");

    let compare = |right: &str, more: &[&str]| {
        let fixed = ["capture", "compare", "left.safetensors", right, "--mode", "diagnostic"];
        assay(&[&fixed[..], &["--first-difference"], more].concat())
    };
    let same = compare("again.safetensors", &[]);
    assert!(same.status.success() || same.status.code() == Some(3), "{}", text(&same));
    assert!(!folder.path().join("first-difference").exists(), "there is nothing to make again");

    let output = compare("right.safetensors", &["--repro", "repro"]);
    assert_eq!(output.status.code(), Some(3), "{}", text(&output));
    let repro = folder.path().join("repro");
    let difference = |folder: &Path| -> serde_json::Value {
        let text = std::fs::read_to_string(folder.join("difference.json")).unwrap();
        serde_json::from_str(&text).unwrap()
    };
    let found = difference(&repro);
    assert_eq!(found["regions"], serde_json::json!(["rms_norm"]));

    let again = Command::new("sh")
        .arg(repro.join("reproduce.sh"))
        .arg(&model)
        .env("ASSAY_LEFT", ASSAY)
        .env("ASSAY_RIGHT", ASSAY)
        .output()
        .unwrap();
    assert_eq!(again.status.code(), Some(3), "{}", text(&again));
    assert_eq!(difference(&repro.join("again")), found);
}
