//! The build stamp is true: of this tree, of dirty and clean trees, and where there is no git.

#[expect(dead_code, reason = "the build script's entry point is not called here")]
#[expect(clippy::print_stdout, reason = "a build script speaks to cargo on stdout")]
#[path = "../build.rs"]
mod script;

use std::path::{Component, Path, PathBuf};
use std::process::Command;

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

#[test]
fn the_stamp_is_of_the_tree_that_was_compiled() {
    let now = script::digest_of(&script::listing(&script::inputs(&root())));
    assert_eq!(
        now,
        assay::units::BUILD.source_digest,
        "the files differ from those this test was built from (edited since?)"
    );
}

#[test]
fn every_included_file_is_an_input() {
    let mut seen = 0;
    for (name, content) in script::inputs(&root()) {
        let Some(text) = name.ends_with(".rs").then(|| String::from_utf8(content).unwrap()) else {
            continue;
        };
        for macro_name in ["include_str!(", "include_bytes!(", "include!("] {
            for (at, _) in text.match_indices(macro_name) {
                let argument = &text[at + macro_name.len()..];
                let Some(path) = argument.trim_start().strip_prefix('"') else { continue };
                let path = path.split('"').next().unwrap();
                let file = flat(&Path::new(&name).parent().unwrap().join(path));
                let first = file.components().next().unwrap().as_os_str().to_str().unwrap();
                // Files under tests/, gates/ and docs/ take part in test builds only.
                assert!(
                    ["tests", "gates", "docs"].contains(&first) || script::INPUTS.contains(&first),
                    "{name} includes {}, which is not among the inputs of build.rs",
                    file.display()
                );
                seen += 1;
            }
        }
    }
    assert!(seen > 0, "no included file was seen");
}

fn flat(path: &Path) -> PathBuf {
    let mut out = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => assert!(out.pop(), "{} leaves the package", path.display()),
            part => out.push(part),
        }
    }
    out
}

/// A package with one source file; `None` where git is not installed.
fn package(commit: bool) -> Option<tempfile::TempDir> {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("src")).unwrap();
    std::fs::write(folder.path().join("Cargo.toml"), "[package]\n").unwrap();
    std::fs::write(folder.path().join("src/lib.rs"), "fn a() {}\n").unwrap();
    std::fs::write(folder.path().join("README.md"), "read\n").unwrap();
    if !git(folder.path(), &["init", "-q"]) {
        return None;
    }
    if commit {
        assert!(git(folder.path(), &["add", "."]));
        assert!(git(folder.path(), &["commit", "-q", "-m", "first"]));
    }
    Some(folder)
}

fn git(folder: &Path, arguments: &[&str]) -> bool {
    Command::new("git")
        .args(["-c", "user.name=test", "-c", "user.email=test@localhost", "-C"])
        .arg(folder)
        .args(arguments)
        .env_remove("GIT_DIR")
        .env_remove("GIT_INDEX_FILE")
        .output()
        .is_ok_and(|o| o.status.success())
}

fn facts(folder: &Path) -> (String, Result<(String, bool), String>) {
    let inputs = script::inputs(folder);
    (script::digest_of(&script::listing(&inputs)), script::git(folder, &inputs))
}

#[test]
fn any_change_of_a_compiled_file_shows() {
    let Some(folder) = package(true) else { return };
    let folder = folder.path();
    let (clean, state) = facts(folder);
    let (revision, dirty) = state.unwrap();
    assert!(revision.len() >= 40 && !dirty);

    let changes: [(&str, &[&str]); 3] = [
        ("unstaged", &[]),
        ("staged", &["add", "."]),
        ("hidden", &["update-index", "--assume-unchanged", "src/lib.rs"]),
    ];
    for (what, then) in changes {
        std::fs::write(folder.join("src/lib.rs"), format!("fn {what}() {{}}\n")).unwrap();
        assert!(then.is_empty() || git(folder, then));
        let (digest, state) = facts(folder);
        assert_ne!(digest, clean, "{what}");
        assert_eq!(state.unwrap(), (revision.clone(), true), "{what}");
    }
    std::fs::write(folder.join("src/lib.rs"), "fn a() {}\n").unwrap();
    assert_eq!(facts(folder), (clean.clone(), Ok((revision.clone(), false))), "put back");

    std::fs::write(folder.join("README.md"), "changed\n").unwrap();
    assert_eq!(facts(folder), (clean.clone(), Ok((revision.clone(), false))), "not compiled");

    std::fs::write(folder.join(".gitignore"), "src/new.rs\n").unwrap();
    std::fs::write(folder.join("src/new.rs"), "").unwrap();
    let (digest, state) = facts(folder);
    assert_ne!(digest, clean, "an empty ignored file");
    assert!(state.unwrap().1, "an ignored file takes part in the build");

    std::fs::remove_file(folder.join("src/new.rs")).unwrap();
    std::fs::rename(folder.join("src/lib.rs"), folder.join("src/main.rs")).unwrap();
    let (digest, state) = facts(folder);
    assert_ne!(digest, clean, "renamed");
    assert!(state.unwrap().1, "renamed");
}

#[test]
fn a_new_commit_moves_the_revision_and_not_the_source_digest() {
    let Some(folder) = package(true) else { return };
    let (digest, state) = facts(folder.path());
    std::fs::write(folder.path().join("README.md"), "changed\n").unwrap();
    assert!(git(folder.path(), &["commit", "-qam", "second"]));
    let (digest_after, state_after) = facts(folder.path());
    assert_eq!(digest, digest_after);
    assert_ne!(state.unwrap().0, state_after.unwrap().0);
}

#[test]
fn without_a_repository_of_its_own_there_is_no_revision() {
    let Some(folder) = package(false) else { return };
    let refused = |folder: &Path| facts(folder).1.expect_err("no revision can be known");
    refused(folder.path());

    // Unpacked inside someone else's repository.
    let Some(outer) = package(true) else { return };
    let inner = outer.path().join("vendor/assay");
    std::fs::create_dir_all(inner.join("src")).unwrap();
    std::fs::write(inner.join("Cargo.toml"), "[package]\n").unwrap();
    std::fs::write(inner.join("src/lib.rs"), "fn a() {}\n").unwrap();
    assert!(refused(&inner).contains("does not track"));
}
