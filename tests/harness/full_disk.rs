//! A full disk under every command that writes: exit code 74, the file named, and never a part of a
//! file under its final name. A limit on file size stands in for the disk.
#![cfg(unix)]

use crate::support::{Project, ended};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Runs `assay` with files of at most this many blocks of 1,024 bytes.
fn limited(project: &Project, blocks: u32, arguments: &[&str]) -> (i32, String, String) {
    let script = format!("trap '' XFSZ; ulimit -f {blocks}; exec \"$0\" \"$@\"");
    let mut command = Command::new("bash");
    command
        .current_dir(project.path())
        .args(["-c", &script, env!("CARGO_BIN_EXE_assay")])
        .args(arguments);
    ended(command.output().unwrap())
}

fn root(path: &str) -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path).display().to_string()
}

/// Every file below a folder.
fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let Ok(entries) = std::fs::read_dir(folder) else { return found };
    for entry in entries {
        let path = entry.unwrap().path();
        if path.is_dir() { found.extend(files(&path)) } else { found.push(path) }
    }
    found
}

#[test]
fn weights_and_captures_are_whole_or_absent() {
    let project = Project::new(&[]);
    let prompts = r#"{"a": [3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 9, 3]}"#;
    std::fs::write(project.path().join("prompts.json"), prompts).unwrap();
    let (llama, descriptor) = (root("tests/fixtures/llama"), root("descriptors/tiny-llama.json"));
    let record = ["capture", "record", "--model", &llama, "--prompts", "prompts.json"];
    let record = [&record[..], &["--all-positions", "--device", "cpu"]].concat();
    for (out, arguments) in [
        ("c.safetensors", record),
        ("synthetic", vec!["model", "synth", "--descriptor", &descriptor, "--seed", "1"]),
        ("packed", vec!["model", "quantize", "--model", &llama, "--roles", "attention"]),
    ] {
        let (code, _, stderr) =
            limited(&project, 8, &[&arguments[..], &["--out", out, "-q"]].concat());
        assert_eq!(code, 74, "{arguments:?}: {stderr}");
        assert!(stderr.contains("File too large"), "{arguments:?}: {stderr}");
        assert!(stderr.contains(out), "the file is named: {stderr}");
        let left = files(project.path());
        let ends = |path: &&PathBuf| path.extension().is_some_and(|e| e == "safetensors");
        let whole: Vec<_> = left.iter().filter(ends).collect();
        assert!(whole.is_empty(), "{arguments:?} left {whole:?}");
        // With room again the same command succeeds over what is left.
        let again = [&arguments[..], &["--out", out, "-q"]].concat();
        let (code, _, stderr) = project.run(&again);
        assert_eq!(code, 0, "{arguments:?}: {stderr}");
        let made = project.path().join(out);
        assert!(made.exists(), "{arguments:?}");
        if made.is_dir() {
            std::fs::remove_dir_all(made).unwrap();
        } else {
            std::fs::remove_file(made).unwrap();
        }
    }
}

#[test]
fn pages_and_manifests_are_whole_or_what_they_were() {
    let project = Project::new(&[("probe", "behaviour: [pass]\nrepeat: 3")]);
    assert_eq!(project.run(&["gates", "run", "all", "-q"]).0, 0);
    let run = project.runs()[0].display().to_string();
    let llama = root("tests/fixtures/llama");
    let generate = ["generate", "--model", &llama, "-p", "a", "--max-tokens", "1", "--seed", "1"];
    for (written, arguments) in [
        ("m.json", [&generate[..], &["--manifest", "m.json"]].concat()),
        ("c.html", vec!["report", "compare", &run, &run, "--out", "c.html"]),
        ("j.xml", vec!["report", "render", &run, "--junit", "j.xml"]),
        ("r/report.html", vec!["report", "render", &run, "--out", "r"]),
    ] {
        let path = project.path().join(written);
        let page = Path::new(&run).join("report.html");
        let before = std::fs::read(&page).unwrap();
        // Nothing fits.
        let (code, _, stderr) = limited(&project, 0, &[&arguments[..], &["-q"]].concat());
        assert_eq!(code, 74, "{arguments:?}: {stderr}");
        assert!(!path.exists(), "{arguments:?}: a part of {written} is there");
        assert_eq!(std::fs::read(&page).unwrap(), before, "{arguments:?}");
        let (code, _, stderr) = project.run(&[&arguments[..], &["-q"]].concat());
        assert_eq!(code, 0, "{arguments:?}: {stderr}");
        let whole = std::fs::read(&path).unwrap();
        // An existing file keeps its content where its replacement does not fit.
        let (code, _, stderr) = limited(&project, 0, &[&arguments[..], &["-q"]].concat());
        assert_eq!(code, 74, "{arguments:?}: {stderr}");
        assert_eq!(std::fs::read(&path).unwrap(), whole, "{arguments:?}");
        let partial = files(project.path());
        let partial = partial.iter().find(|p| p.extension().is_some_and(|e| e == "part"));
        assert_eq!(partial, None, "{arguments:?}");
    }
}

/// `/dev/full` as stdout: what a command prints cannot be printed.
#[cfg(target_os = "linux")]
#[test]
fn text_and_figures_that_cannot_be_printed_are_74() {
    let project = Project::new(&[]);
    let (llama, text) = (root("tests/fixtures/llama"), root("tests/fixtures/text/alice.txt"));
    let generate = ["generate", "--model", &llama, "-p", "The river", "--seed", "1", "-q"];
    let eval = ["eval", "--model", &llama, "--text", &text, "--max-tokens", "40", "-q"];
    for arguments in [
        generate.to_vec(),
        [&generate[..], &["--json"]].concat(),
        eval.to_vec(),
        vec!["model", "describe", &llama],
    ] {
        let full = std::fs::File::create("/dev/full").unwrap();
        let output = project.assay(&arguments).stdout(full).output().unwrap();
        let (code, _, stderr) = ended(output);
        assert_eq!(code, 74, "{arguments:?}: {stderr}");
        assert_eq!(stderr, "error: No space left on device (os error 28)\n", "{arguments:?}");
    }
}
