//! `docs/inputs.md` names gates, trials and tests: each is there.

use std::path::{Path, PathBuf};

fn root(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// Every Rust source below a folder, one after the other.
fn sources(folder: &Path, all: &mut String) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, all);
        } else if path.extension().is_some_and(|e| e == "rs") {
            all.push_str(&std::fs::read_to_string(&path).unwrap());
        }
    }
}

/// Whether what a name of the last column stands for exists.
fn exists(name: &str, code: &str) -> bool {
    let gate = |gate: &str| std::fs::read_to_string(root(&format!("gates/{gate}.yaml")));
    if let Some((file, trial)) = name.split_once(": ") {
        let listed = |line: &str| {
            let line = line.trim_start().trim_start_matches("- ");
            let value = line.strip_prefix("case: ").or_else(|| line.strip_prefix("name: "));
            value.is_some_and(|v| v.split(',').next() == Some(trial))
                || line.starts_with(&format!("{{ case: {trial},"))
        };
        return gate(file).is_ok_and(|text| text.lines().any(listed));
    }
    if name.contains('/') {
        let file = root(&format!("tests/harness/{name}"));
        return file.with_extension("yaml").is_file() && file.with_extension("txt").is_file();
    }
    gate(name).is_ok() || code.contains(&format!("fn {name}("))
}

#[test]
fn every_input_names_what_shows_it() {
    let page = std::fs::read_to_string(root("docs/inputs.md")).unwrap();
    let mut code = String::new();
    sources(&root("tests"), &mut code);
    sources(&root("src"), &mut code);
    let rows = page.lines().filter(|l| l.starts_with("| ") && !l.starts_with("| input"));
    let mut count = 0;
    for row in rows {
        let shown = row.trim_end_matches(" |").rsplit(" | ").next().unwrap();
        let names: Vec<&str> = shown.split('`').skip(1).step_by(2).collect();
        assert!(!names.is_empty(), "{row}");
        for name in names {
            assert!(exists(name, &code), "`{name}` is nowhere: {row}");
        }
        count += 1;
    }
    assert!(count >= 30, "{count} inputs");
    // The numbers that the page gives.
    let configs = std::fs::read_dir(root("tests/fixtures/bad-configs")).unwrap().count();
    let gates = std::fs::read_dir(root("gates")).unwrap().map(|e| e.unwrap().path());
    let files = gates.filter(|p| p.to_string_lossy().contains("refusals-"));
    let refusals: usize =
        files.map(|path| std::fs::read_to_string(path).unwrap().matches("case: ").count()).sum();
    let page = page.split_whitespace().collect::<Vec<_>>().join(" ");
    for count in [
        format!("{configs} configs (`tests/fixtures/bad-configs/`)"),
        format!("{refusals} refusals of the gates `refusals-*`"),
    ] {
        assert!(page.contains(&count), "the page should say: {count}");
    }
    for absent in ["refusals-safetensors: no-such-case", "spec/no_such_file", "no_such_test"] {
        assert!(!exists(absent, &code), "{absent}");
    }
}
