//! A full disk under commands that write: exit code 74, the file named, and never a part of a file
//! under its final name. A limit on file size stands in for the disk.
#![cfg(unix)]

use crate::support::{Project, ended};
use std::collections::BTreeMap;
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

/// Every file below a folder with its content.
fn contents(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let read = |path: PathBuf| {
        let content = std::fs::read(&path).unwrap();
        (path, content)
    };
    files(folder).into_iter().map(read).collect()
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

/// The files of a folder that makes a difference again: each is whole, or what it was.
#[test]
fn a_difference_to_make_again_is_whole_or_what_it_was() {
    let project = Project::new(&[]);
    std::fs::write(project.path().join("prompts.json"), r#"{"a": [3, 1, 4, 1, 5]}"#).unwrap();
    let llama = root("tests/fixtures/llama");
    for policy in ["f32", "reference"] {
        let out = format!("{policy}.safetensors");
        let record = ["capture", "record", "--model", &llama, "--prompts", "prompts.json", "-q"];
        let options = ["--all-positions", "--tap", "all", "--device", "cpu", "--policy", policy];
        let arguments = [&record[..], &options[..], &["--out", &out]].concat();
        let (code, _, stderr) = project.run(&arguments);
        assert_eq!(code, 0, "{policy}: {stderr}");
    }
    let compare = ["capture", "compare", "f32.safetensors", "reference.safetensors", "-q"];
    let options = ["--mode", "diagnostic", "--first-difference", "--repro", "again"];
    let compare = [&compare[..], &options[..]].concat();
    let again = project.path().join("again");
    let (code, _, stderr) = limited(&project, 0, &compare);
    assert_eq!(code, 74, "{stderr}");
    assert!(stderr.contains("again/difference.json: File too large"), "{stderr}");
    assert_eq!(files(&again), Vec::<PathBuf>::new());
    let (code, _, stderr) = project.run(&compare);
    assert_eq!(code, 3, "{stderr}");
    let whole = contents(&again);
    assert_eq!(whole.len(), 5, "{:?}", whole.keys());
    assert_eq!(limited(&project, 0, &compare).0, 74);
    assert_eq!(contents(&again), whole);
}

/// A run that `report merge` cannot record has no final name.
#[test]
fn a_joined_run_is_whole_or_partial() {
    let project = Project::new(&[("probe", "behaviour: [pass]\nrepeat: 3")]);
    assert_eq!(project.run(&["gates", "run", "all", "-q"]).0, 0);
    let run = project.runs()[0].display().to_string();
    let merge = ["report", "merge", &run, "--out", "joined", "-q"];
    let joined = project.path().join("joined");
    let (code, stdout, stderr) = limited(&project, 0, &merge);
    assert_eq!((code, stdout.as_str()), (74, ""), "{stderr}");
    assert!(stderr.contains("joined/") && stderr.contains("File too large"), "{stderr}");
    let left = files(&joined);
    assert!(left.iter().all(|path| path.ends_with("run.json.new")), "{left:?}");
    let (code, _, stderr) = project.run(&merge);
    assert_eq!(code, 0, "{stderr}");
    let pages = files(&joined).into_iter().filter(|path| path.ends_with("report.html"));
    assert_eq!(pages.count(), 1);
}

/// A scenario that cannot be recorded is not measured.
#[test]
fn a_scenario_without_room_decides_nothing() {
    let project = Project::new(&[("probe", "behaviour: [pass]")]);
    let scenario = format!(
        "scenario: tiny\nquestion: Is it?\ntrack: performance\ngates: [probe]\n\
         profiles:\n  cpu: {{ model: {{ synth: {} }} }}\n\
         workload: {{ prompt_tokens: 4, decode_tokens: 3 }}\n\
         arms:\n  baseline: {{ policy: f32, threads: 1 }}\n  candidate: {{ policy: f32, threads: 1 }}\n\
         measure: {{ warmup: 1, quads: [12], launches: 2, metrics: [decode_tokens_per_second] }}\n\
         admit_when: {{ all: [{{ ratio: decode_tokens_per_second, lower_bound_at_least: 0.1 }}] }}\n",
        root("descriptors/tiny-llama.json")
    );
    std::fs::write(project.path().join("tiny.yaml"), scenario).unwrap();
    // The gate that it rests on still has room.
    assert_eq!(project.run(&["gates", "run", "probe", "-q"]).0, 0);
    let results = project.path().join("results");
    let before = contents(&results);
    let (code, stdout, stderr) =
        limited(&project, 0, &["scenario", "run", "./tiny.yaml", "--device", "cpu", "-q"]);
    assert_eq!((code, stdout.as_str()), (74, ""), "{stderr}");
    assert!(stderr.contains("results/") && stderr.contains("File too large"), "{stderr}");
    let mut left = files(&results);
    left.retain(|path| !before.contains_key(path));
    assert!(left.iter().all(|path| path.ends_with("run.json.new")), "{left:?}");
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
