//! Stamps the build: what source was compiled, by what, from which revision.
//!
//! Every fact is an environment variable that `src/units/build.rs` reads at compile time. A fact
//! that cannot be established is spelt `unavailable`, never guessed.

use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What the compiler reads of this package. `tests/build_stamp.rs` fails when the source includes
/// a file that lies elsewhere.
pub(crate) const INPUTS: [&str; 5] = ["build.rs", "Cargo.lock", "Cargo.toml", "kernels", "src"];

fn main() {
    let root = PathBuf::from(env("CARGO_MANIFEST_DIR"));
    let inputs = inputs(&root);

    // Naming a path that does not exist would rerun this script on every build. A folder is
    // watched with all it holds, so an added or removed file counts as a change.
    for input in INPUTS.iter().filter(|i| root.join(i).exists()) {
        println!("cargo::rerun-if-changed={input}");
    }
    for path in git_watch(&root) {
        println!("cargo::rerun-if-changed={}", path.display());
    }
    for variable in ["RUSTFLAGS", "CARGO_ENCODED_RUSTFLAGS"] {
        println!("cargo::rerun-if-env-changed={variable}");
    }

    stamp("SOURCE_DIGEST", &digest_of(&listing(&inputs)));
    let (revision, dirty, note) = match git(&root, &inputs) {
        Ok((revision, dirty)) => (revision, dirty.to_string(), String::new()),
        Err(reason) => ("unavailable".into(), "unavailable".into(), reason),
    };
    stamp("GIT_REVISION", &revision);
    stamp("GIT_DIRTY", &dirty);
    stamp("GIT_NOTE", &note);
    stamp("COMPILER", &compiler().unwrap_or_else(|| "unavailable".into()));
    stamp("TARGET", &env("TARGET"));
    stamp("PROFILE", &env("PROFILE"));
    stamp("OPT_LEVEL", &env("OPT_LEVEL"));
    stamp("TARGET_FEATURES", &env("CARGO_CFG_TARGET_FEATURE"));
    stamp("RUSTFLAGS", &env("CARGO_ENCODED_RUSTFLAGS").replace('\u{1f}', " "));
    stamp("FEATURES", &features().join(","));
}

fn env(name: &str) -> String {
    std::env::var(name).unwrap_or_default()
}

fn stamp(name: &str, value: &str) {
    println!("cargo::rustc-env=ASSAY_BUILD_{name}={}", value.replace(['\n', '\r'], " "));
}

/// The content of every input file by its path relative to `root`, with `/` between folders.
pub(crate) fn inputs(root: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut files = BTreeMap::new();
    for input in INPUTS {
        collect(&root.join(input), input, &mut files);
    }
    files
}

fn collect(path: &Path, name: &str, files: &mut BTreeMap<String, Vec<u8>>) {
    if path.is_dir() {
        for entry in std::fs::read_dir(path).into_iter().flatten().flatten() {
            let child = format!("{name}/{}", entry.file_name().to_string_lossy());
            collect(&entry.path(), &child, files);
        }
    } else if let Ok(content) = std::fs::read(path) {
        files.insert(name.to_owned(), content);
    }
}

/// One line a file, sorted by path, as `sha256sum` prints it; the source digest is its SHA-256.
pub(crate) fn listing(files: &BTreeMap<String, Vec<u8>>) -> String {
    let mut list = String::new();
    for (name, content) in files {
        writeln!(list, "{}  {name}", sha256(content)).expect("writing to a string");
    }
    list
}

/// SHA-256 of text, in hexadecimal.
pub(crate) fn digest_of(text: &str) -> String {
    sha256(text.as_bytes())
}

fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|b| format!("{b:02x}")).collect()
}

/// The revision of HEAD, and whether the files compiled differ from it in any way.
///
/// Files are compared with HEAD's tree by content, not through the index: staged, unstaged,
/// untracked and ignored files that take part in the build all count, and nothing else does.
///
/// # Errors
/// Why the revision of these files cannot be told.
pub(crate) fn git(
    root: &Path,
    inputs: &BTreeMap<String, Vec<u8>>,
) -> Result<(String, bool), String> {
    let revision = run(root, &["rev-parse", "--verify", "HEAD"], None)?.trim().to_owned();
    let mut committed = BTreeMap::new();
    let mut arguments = vec!["ls-tree", "-r", "-z", "HEAD", "--"];
    arguments.extend(INPUTS);
    for entry in run(root, &arguments, None)?.split_terminator('\0') {
        // "<mode> blob <object>\t<path>"
        let (facts, path) = entry.split_once('\t').ok_or("git ls-tree gave an unknown format")?;
        let object = facts.split(' ').nth(2).ok_or("git ls-tree gave an unknown format")?;
        committed.insert(path.to_owned(), object.to_owned());
    }
    if !committed.contains_key("Cargo.toml") {
        return Err("the folder is inside a git repository that does not track this package".into());
    }
    let names: Vec<&str> = inputs.keys().map(String::as_str).collect();
    // `hash-object` applies the line-ending rules that a commit would.
    let objects = run(root, &["hash-object", "--stdin-paths"], Some(&(names.join("\n") + "\n")))?;
    let present: BTreeMap<String, String> =
        names.iter().map(|n| n.to_string()).zip(objects.lines().map(str::to_owned)).collect();
    Ok((revision, present != committed))
}

/// Files whose change means that HEAD names another commit.
fn git_watch(root: &Path) -> Vec<PathBuf> {
    let path = |name: &str| -> Option<PathBuf> {
        let found = run(root, &["rev-parse", "--git-path", name], None).ok()?;
        let found = root.join(found.trim_end_matches('\n'));
        found.exists().then_some(found)
    };
    let mut watched: Vec<PathBuf> = path("HEAD").into_iter().collect();
    match path("logs/HEAD") {
        Some(log) => watched.push(log),
        // Without a reflog, the branch itself: a loose file, or among the packed ones.
        None => watched.extend(["refs/heads", "packed-refs"].into_iter().filter_map(path)),
    }
    watched
}

fn run(root: &Path, arguments: &[&str], input: Option<&str>) -> Result<String, String> {
    use std::io::Write as _;
    use std::process::Stdio;

    let mut command = Command::new("git");
    command.arg("-C").arg(root).args(arguments).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.stdin(if input.is_some() { Stdio::piped() } else { Stdio::null() });
    // A build that runs inside a git hook must not be answered from the hook's repository.
    for variable in ["GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY"] {
        command.env_remove(variable);
    }
    let mut child = command.spawn().map_err(|e| format!("git does not start: {e}"))?;
    if let (Some(text), Some(mut stdin)) = (input, child.stdin.take()) {
        // Written from a thread: git answers while it reads, and both pipes are of finite size.
        let text = text.to_owned();
        std::thread::spawn(move || stdin.write_all(text.as_bytes()));
    }
    let output = child.wait_with_output().map_err(|e| format!("git did not finish: {e}"))?;
    if output.status.success() {
        String::from_utf8(output.stdout).map_err(|_| "a path in git is not UTF-8".to_owned())
    } else {
        let message = String::from_utf8_lossy(&output.stderr);
        Err(format!("git: {}", message.lines().next().unwrap_or("failed").trim()))
    }
}

fn compiler() -> Option<String> {
    let output = Command::new(env("RUSTC")).arg("--version").output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_owned())
}

fn features() -> Vec<String> {
    let mut features: Vec<String> = std::env::vars()
        .filter_map(|(name, _)| Some(name.strip_prefix("CARGO_FEATURE_")?.to_lowercase()))
        .collect();
    features.sort();
    features
}
