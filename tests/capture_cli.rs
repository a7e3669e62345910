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

/// Records two sides of the llama fixture and walks them: the flags of each, and the regions of the first
/// difference. The script of the folder records them so again and finds the same difference.
fn script_finds_again(left: &[&str], right: &[&str], regions: &[&str]) {
    let folder = tempfile::tempdir().unwrap();
    let model = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/llama");
    std::fs::write(folder.path().join("prompts.json"), r#"{"a": [3, 1, 4, 1, 5, 9, 2, 6]}"#)
        .unwrap();
    let assay =
        |args: &[&str]| Command::new(ASSAY).args(args).current_dir(folder.path()).output().unwrap();
    let record = |flags: &[&str], out: &str| {
        let fixed =
            ["--prompts", "prompts.json", "--all-positions", "--tap", "all", "--chunk", "4"];
        let model = ["capture", "record", "--model", model.to_str().unwrap()];
        let output =
            assay(&[&model[..], &fixed, &["--device", "cpu", "--out", out], flags].concat());
        assert!(output.status.success(), "{}", text(&output));
    };
    record(left, "left.safetensors");
    record(right, "right.safetensors");
    record(left, "again.safetensors");

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
    assert_eq!(found["regions"], serde_json::json!(regions));

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

#[test]
fn the_script_of_a_first_difference_finds_it_again() {
    script_finds_again(&["--policy", "f32"], &["--policy", "reference"], &["rms_norm"]);
}

/// K of the output projection is one segment, which two ranks cut.
#[test]
fn the_script_divides_each_side_as_it_was() {
    let f32 = ["--policy", "f32"];
    let ranks = ["--policy", "f32", "--pp", "2", "--tp", "2"];
    script_finds_again(&f32, &ranks, &["gemm"]);
    script_finds_again(&ranks, &f32, &["gemm"]);
}

/// A capture takes the place of its name: only another capture, an empty file or nothing may have it.
#[cfg(unix)]
#[test]
fn nothing_but_a_capture_is_written_over() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let model = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/llama");
    let prompts = r#"{"a": [3, 1, 4]}"#;
    std::fs::write(at("prompts.json"), prompts).unwrap();
    std::fs::copy(model.join("model.safetensors"), at("weights.safetensors")).unwrap();
    let record = |out: &str| {
        Command::new(ASSAY)
            .args(["capture", "record", "--prompts", "prompts.json", "--device", "cpu", "--model"])
            .arg(&model)
            .args(["--out", out, "-q"])
            .current_dir(folder.path())
            .output()
            .unwrap()
    };
    let refused = |out: &str, found: &str| {
        let output = record(out);
        assert_eq!(output.status.code(), Some(64), "{}", text(&output));
        let expected = format!(
            "error: {out} is {found}, and only captures are written over; choose another name\n"
        );
        assert_eq!(text(&output), expected);
    };
    refused("prompts.json", "a file, but no capture");
    assert_eq!(std::fs::read_to_string(at("prompts.json")).unwrap(), prompts);
    refused("weights.safetensors", "a file, but no capture");
    std::os::unix::fs::symlink("nowhere", at("dangling")).unwrap();
    refused("dangling", "a link to nothing");
    std::fs::create_dir(at("folder")).unwrap();
    refused("folder", "a folder");
    // A pipe is a device that anyone may make.
    assert!(Command::new("mkfifo").arg(at("device")).status().unwrap().success());
    refused("device", "no regular file");
    std::os::unix::fs::symlink("device", at("link-to-device")).unwrap();
    refused("link-to-device", "no regular file");

    // Empty, then a capture, then through a link that stays one.
    std::fs::write(at("empty"), "").unwrap();
    std::os::unix::fs::symlink("empty", at("link")).unwrap();
    for out in ["empty", "empty", "link"] {
        let output = record(out);
        assert!(output.status.success(), "{}", text(&output));
        assert!(assay::harness::capture::Capture::open(&at("empty")).unwrap().info.is_some());
    }
    assert!(std::fs::symlink_metadata(at("link")).unwrap().is_symlink());
    let mut names: Vec<_> = std::fs::read_dir(folder.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    let expected = [
        "dangling",
        "device",
        "empty",
        "folder",
        "link",
        "link-to-device",
        "prompts.json",
        "weights.safetensors",
    ];
    assert_eq!(names, expected, "nothing beside them is left");
}
