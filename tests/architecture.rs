//! House rules that the compiler cannot check, over every file under `src/`.
//!
//! Layers flow one way, `mod.rs` files hold no code, rooms stay small, and `unsafe`, printing,
//! the environment, clocks and a few crates each keep to their named place. Every rule is a
//! function from source text to findings, so that the tests can show it failing on a planted
//! defect.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

mod support {
    pub(crate) mod source;
}
use support::source::{code_only, words};

/// The layers, lowest first. A module uses only those before its own.
const LAYERS: [&str; 10] = [
    "units",
    "tensor",
    "descriptor",
    "placement",
    "weights",
    "backend",
    "engine",
    "generation",
    "harness",
    "cli",
];

const MAX_LINES: usize = 400;

/// Things with one home: what is looked for, where it may stand, and why.
const HOMES: [(&str, &[&str], &str); 8] = [
    ("println!", &["cli/"], "stdout belongs to the command line"),
    ("print!", &["cli/"], "stdout belongs to the command line"),
    ("eprintln!", &["cli/"], "messages go through the command line"),
    ("eprint!", &["cli/"], "messages go through the command line"),
    ("anyhow", &["cli/"], "the library has typed errors (thiserror)"),
    (
        "process::exit",
        &["cli/", "harness/run/worker.rs"],
        "the library returns errors, only the command line and its worker end a process",
    ),
    ("serde_yaml", &["harness/"], "one module reads YAML"),
    ("cudarc", &["backend/cuda/"], "the CUDA driver is the CUDA backend's"),
];

/// Where `unsafe` may stand: shared memory and devices.
const UNSAFE_HOMES: [&str; 3] = ["tensor/", "backend/", "weights/"];

/// A file of `src/`: its path below `src/`, its text, and the text without comments and literals.
struct Source {
    path: String,
    text: String,
    code: String,
}

impl Source {
    fn new(path: &str, text: &str) -> Source {
        Source { path: path.into(), text: text.into(), code: code_only(text) }
    }

    /// The layer a file belongs to; `None` for `lib.rs` and `main.rs`, which tie layers together.
    fn layer(&self) -> Option<&str> {
        let first = self.path.split('/').next()?;
        (first != "lib.rs" && first != "main.rs").then(|| first.trim_end_matches(".rs"))
    }
}

/// Every file, read once.
fn sources() -> &'static [Source] {
    static SOURCES: OnceLock<Vec<Source>> = OnceLock::new();
    SOURCES.get_or_init(read_sources)
}

fn read_sources() -> Vec<Source> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut folders = vec![root.clone()];
    let mut files: Vec<PathBuf> = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("src is readable") {
            let path = entry.expect("src is readable").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|e| e == "rs") {
                files.push(path);
            }
        }
    }
    files.sort();
    assert!(files.len() > 10, "src/ was not found");
    let below = |path: &Path| {
        let path = path.strip_prefix(&root).expect("below src").to_string_lossy().into_owned();
        path.replace('\\', "/")
    };
    files
        .iter()
        .map(|path| Source::new(&below(path), &fs::read_to_string(path).expect("src is readable")))
        .collect()
}

/// Fails with every finding of a rule over the whole tree.
fn require_none(rule: impl Fn(&Source) -> Vec<String>) {
    let findings: Vec<String> = sources().iter().flat_map(rule).collect();
    let mut text = String::new();
    for finding in &findings {
        writeln!(text, "  {finding}").expect("writing to a string");
    }
    assert!(findings.is_empty(), "{} finding(s):\n{text}", findings.len());
}

/// Edges that go to the right: `crate::X` where X comes after the file's own layer.
fn wrong_edges(source: &Source) -> Vec<String> {
    let Some(layer) = source.layer() else { return Vec::new() };
    let Some(own) = LAYERS.iter().position(|l| *l == layer) else {
        return vec![format!("src/{}: `{layer}` is not one of the layers {LAYERS:?}", source.path)];
    };
    used_layers(&source.code)
        .into_iter()
        .filter_map(|(line, used)| {
            let position = LAYERS.iter().position(|l| *l == used)?;
            (position > own).then(|| {
                format!(
                    "src/{}:{line}: `{layer}` uses `{used}`, which comes after it; \
                     the order is {}",
                    source.path,
                    LAYERS.join(" → ")
                )
            })
        })
        .collect()
}

/// Top-level modules named by `crate::X` or `crate::{X…, Y…}`, with their lines.
fn used_layers(code: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for (start, _) in code.match_indices("crate::") {
        let before = code[..start].chars().next_back();
        if before.is_some_and(|c| c.is_alphanumeric() || c == '_') {
            continue;
        }
        let line = code[..start].matches('\n').count() + 1;
        let rest = code[start + "crate::".len()..].trim_start();
        match rest.strip_prefix('{') {
            None => found.extend(words(rest).next().map(|w| (line, w.to_owned()))),
            Some(group) => {
                let mut depth = 0;
                let mut at_start = true;
                for (offset, c) in group.char_indices() {
                    match c {
                        '{' => depth += 1,
                        '}' if depth == 0 => break,
                        '}' => depth -= 1,
                        ',' if depth == 0 => at_start = true,
                        c if at_start && c.is_alphabetic() => {
                            let line = line + group[..offset].matches('\n').count();
                            found.extend(words(&group[offset..]).next().map(|w| (line, w.into())));
                            at_start = false;
                        }
                        _ => {}
                    }
                }
            }
        }
    }
    found
}

/// Anything in a `mod.rs` but docs, attributes, `mod` and `use`.
fn code_in_mod_rs(source: &Source) -> Vec<String> {
    if source.path != "lib.rs" && !source.path.ends_with("/mod.rs") {
        return Vec::new();
    }
    const ITEMS: [&str; 11] = [
        "fn",
        "struct",
        "enum",
        "impl",
        "trait",
        "const",
        "static",
        "type",
        "union",
        "macro_rules",
        "let",
    ];
    numbered(&source.code)
        .find(|(_, line)| words(line).any(|w| ITEMS.contains(&w)))
        .into_iter()
        .map(|(number, line)| {
            let path = &source.path;
            format!(
                "src/{path}:{number}: `{}`: this file holds docs and re-exports only",
                line.trim()
            )
        })
        .collect()
}

fn too_long(source: &Source) -> Vec<String> {
    let lines = source.text.lines().count();
    let path = &source.path;
    if lines <= MAX_LINES {
        return Vec::new();
    }
    vec![format!("src/{path}: {lines} lines; past {MAX_LINES} a file asks to be split by idea")]
}

/// Things that stand outside their home.
fn away_from_home(source: &Source) -> Vec<String> {
    let mut findings = Vec::new();
    for (needle, homes, why) in HOMES {
        if homes.iter().any(|home| source.path.starts_with(home)) {
            continue;
        }
        for (number, line) in numbered(&source.code) {
            if has_word(line, needle) {
                let path = &source.path;
                findings.push(format!("src/{path}:{number}: `{needle}` only in {homes:?}: {why}"));
            }
        }
    }
    findings
}

/// `unsafe` outside its homes, or without a `SAFETY:` comment (blocks) or `# Safety` (functions).
fn unexplained_unsafe(source: &Source) -> Vec<String> {
    let original: Vec<&str> = source.text.lines().collect();
    let mut findings = Vec::new();
    for (number, line) in numbered(&source.code).filter(|(_, l)| words(l).any(|w| w == "unsafe")) {
        let path = &source.path;
        if !UNSAFE_HOMES.iter().any(|home| path.starts_with(home)) {
            findings.push(format!("src/{path}:{number}: `unsafe` only in {UNSAFE_HOMES:?}"));
        }
        let declares =
            ["unsafe fn", "unsafe extern", "unsafe trait"].iter().any(|d| line.contains(d));
        let wanted = if declares { "# Safety" } else { "SAFETY:" };
        // The explanation stands in the comment right above, attributes and wrapped expressions
        // between them allowed.
        let above = &original[number.saturating_sub(16)..number];
        let explained = above.iter().any(|l| l.contains(wanted));
        // A function pointer type (`unsafe fn(…)`) declares nothing.
        if !explained && !line.contains("unsafe fn(") {
            findings.push(format!("src/{path}:{number}: `unsafe` without `{wanted}` above it"));
        }
    }
    findings
}

fn numbered(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.lines().enumerate().map(|(i, line)| (i + 1, line))
}

/// Whether `needle` occurs in `line` with no identifier character beside it.
fn has_word(line: &str, needle: &str) -> bool {
    let joins = |c: char| c.is_alphanumeric() || c == '_';
    line.match_indices(needle).any(|(at, _)| {
        !line[..at].chars().next_back().is_some_and(joins)
            && !line[at + needle.len()..].chars().next().is_some_and(joins)
    })
}

#[test]
fn layers_flow_one_way() {
    require_none(wrong_edges);
}

#[test]
fn lib_rs_names_the_same_layers() {
    let text = &sources().iter().find(|s| s.path == "lib.rs").expect("src/lib.rs").text;
    let order = LAYERS.join(" → ");
    assert!(text.contains(&order), "the order in src/lib.rs is not `{order}`");
}

#[test]
fn mod_rs_holds_docs_and_re_exports() {
    require_none(code_in_mod_rs);
}

#[test]
fn rooms_are_small() {
    require_none(too_long);
}

#[test]
fn things_stay_at_home() {
    require_none(away_from_home);
}

#[test]
fn unsafe_is_explained() {
    require_none(unexplained_unsafe);
}

#[test]
fn every_rule_can_fail() {
    let up = |text: &str| wrong_edges(&Source::new("tensor/shared.rs", text));
    assert_eq!(up("use crate::units::Digest;").len(), 0);
    assert_eq!(up("// see crate::cli\nconst A: &str = \"crate::cli\";").len(), 0);
    let found = up("\nuse crate::{units::{Digest, Exit},\n  backend::{Op, Plan}};");
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].starts_with("src/tensor/shared.rs:3: `tensor` uses `backend`"), "{found:?}");
    assert_eq!(up("fn f() -> crate::engine::Output { $crate::cli::main() }").len(), 2);
    assert_eq!(wrong_edges(&Source::new("misc/x.rs", "")).len(), 1);

    let code = |text: &str| code_in_mod_rs(&Source::new("tensor/mod.rs", text)).len();
    assert_eq!(code("//! fn\n#[cfg(test)]\nmod a;\npub use a::{fn_name, B};"), 0);
    assert_eq!(code("mod a;\nfn f() {}"), 1);

    assert_eq!(too_long(&Source::new("a.rs", &"\n".repeat(MAX_LINES + 1))).len(), 1);

    let away = |path: &str, text: &str| away_from_home(&Source::new(path, text)).len();
    assert_eq!(away("engine/a.rs", "fn f() { println!(\"x\") }"), 1);
    assert_eq!(away("cli/a.rs", "fn f() { println!(\"x\") }"), 0);
    assert_eq!(away("engine/a.rs", "/* println!() */ fn println() {}"), 0);
    assert_eq!(away("engine/a.rs", "use anyhow::Context;"), 1);

    let bare = |path: &str, text: &str| unexplained_unsafe(&Source::new(path, text)).len();
    assert_eq!(bare("tensor/a.rs", "// SAFETY: checked.\nunsafe { f() }"), 0);
    assert_eq!(bare("tensor/a.rs", "// checked.\nunsafe { f() }"), 1);
    assert_eq!(bare("tensor/a.rs", "/// # Safety\n/// AVX2.\nunsafe fn f() {}"), 0);
    assert_eq!(bare("harness/a.rs", "// SAFETY: checked.\nunsafe { f() }"), 1);
}
