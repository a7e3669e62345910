//! Finding the project folder and its gate files.

use super::Pattern;
use crate::harness::spec::{Diagnostic, GateFile, did_you_mean, read_file};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Why nothing was planned.
#[derive(Debug, thiserror::Error)]
pub enum PlanError {
    /// Every fault of every file.
    #[error("{}", .0.iter().map(Diagnostic::to_string).collect::<Vec<_>>().join("\n\n"))]
    Files(Vec<Diagnostic>),
    #[error("no gate is called `{word}`{}", hint.as_ref().map(|h| format!("; {h}")).unwrap_or_default())]
    UnknownGate { word: String, hint: Option<String> },
    #[error("no gate has the tag `{tag}`{}", hint.as_ref().map(|h| format!("; {h}")).unwrap_or_default())]
    UnknownTag { tag: String, hint: Option<String> },
    #[error("no trial matches `{0}`")]
    NoTrial(String),
    #[error("no trial is selected, so nothing would be tested")]
    Nothing,
    #[error("no gate selected has the key `{key}` of `--set`{}", hint.as_ref().map(|h| format!("; {h}")).unwrap_or_default())]
    UnusedSet { key: String, hint: Option<String> },
    #[error(
        "--set {key}: a key of every gate, which `--set` leaves as it is{}; policies and devices are \
         chosen by the names of trials, such as `GATE/cpu/fast/*`",
        if keys.is_empty() { String::new() } else { format!("; it gives `{}`", keys.join("`, `")) }
    )]
    CommonSet { key: String, keys: Vec<String> },
    #[error(
        "there is no `gates` folder in {} or above it; run inside the project, or name gate files",
        .0.display()
    )]
    NoProject(PathBuf),
    #[error("cannot list {}: {source}", path.display())]
    List { path: PathBuf, source: std::io::Error },
}

/// The nearest folder at or above `start` that has a `gates` folder.
pub fn project_root(start: &Path) -> Option<PathBuf> {
    start.ancestors().find(|folder| folder.join("gates").is_dir()).map(Path::to_owned)
}

/// The gate files below `<root>/gates`, sorted by path.
///
/// # Errors
/// A folder cannot be listed.
pub fn discover(root: &Path) -> Result<Vec<PathBuf>, PlanError> {
    let mut files = Vec::new();
    let mut folders = vec![root.join("gates")];
    while let Some(folder) = folders.pop() {
        let list = |source| PlanError::List { path: folder.clone(), source };
        for entry in std::fs::read_dir(&folder).map_err(list)? {
            let path = entry.map_err(list)?.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|e| e == "yaml" || e == "yml") {
                files.push(path);
            }
        }
    }
    files.sort();
    Ok(files)
}

/// Reads the gates that patterns select: those of the project, and files named by path.
///
/// # Errors
/// Every faulty file, or a pattern that selects no gate.
pub fn read_gates(
    root: Option<&Path>,
    patterns: &[Pattern],
    set: &BTreeMap<String, String>,
) -> Result<Vec<GateFile>, PlanError> {
    let mut paths = root.map(discover).transpose()?.unwrap_or_default();
    let files: Vec<&PathBuf> = patterns
        .iter()
        .filter_map(|p| if let Pattern::File(f) = p { Some(f) } else { None })
        .collect();
    let only_files = !patterns.is_empty() && files.len() == patterns.len();
    let same = |a: &Path, b: &Path| a.canonicalize().ok() == b.canonicalize().ok();
    paths.retain(|p| !only_files && !files.iter().any(|f| same(f, p)));
    paths.extend(files.into_iter().cloned());
    let mut gates = Vec::new();
    let mut faults = Vec::new();
    for path in paths {
        match read_with(&path, patterns, set) {
            Ok(gate) => gates.push(gate),
            Err(fault) => faults.push(fault),
        }
    }
    gates.sort_by(|a, b| a.name.cmp(&b.name));
    for pair in gates.windows(2) {
        if pair[0].name == pair[1].name {
            let other = pair[0].path.display();
            let message = format!("a gate `{}` is also in {other}", pair[1].name);
            faults.push(Diagnostic::new(&pair[1].path, message));
        }
    }
    if !faults.is_empty() {
        return Err(PlanError::Files(faults));
    }
    for pattern in patterns {
        let is_selected = |g: &GateFile| {
            pattern.is_about_trials() || pattern.selects(&g.name, &g.tags, &g.path, "")
        };
        if !gates.iter().any(is_selected) {
            return Err(unknown(pattern, &gates));
        }
    }
    let takes = |key: &&String| gates.iter().any(|g| g.overrides.contains_key(*key));
    if let Some(key) = set.keys().find(|key| !takes(key)) {
        return Err(unused(key, patterns, &gates));
    }
    Ok(gates)
}

/// Reads a gate with those `--set` values that are meant for it: all of them if it is selected by
/// name, tag or file, with `all` those that it requires, none if it is not selected. A model given for
/// one gate must not replace the model of another.
fn read_with(
    path: &Path,
    patterns: &[Pattern],
    set: &BTreeMap<String, String>,
) -> Result<GateFile, Diagnostic> {
    let text = read_file(path)?;
    if set.is_empty() {
        return GateFile::parse(path, &text, set);
    }
    let head = GateFile::heading(path, &text);
    let named = is_named(patterns, &head.gate, &head.tags, path);
    let all = patterns.contains(&Pattern::All);
    let mut meant = set.clone();
    meant.retain(|key, _| named || (all && head.requires.set.contains(key)));
    GateFile::parse(path, &text, &meant)
}

/// Whether a gate, or trials of it, are selected by name, tag or file.
fn is_named(patterns: &[Pattern], gate: &str, tags: &[String], path: &Path) -> bool {
    let selects = |pattern: &Pattern| pattern.selects(gate, tags, path, "");
    patterns.iter().any(|pattern| match pattern {
        Pattern::All => false,
        Pattern::Name(name) => selects(&Pattern::parse(name.split('/').next().unwrap_or(name))),
        other => selects(other),
    })
}

/// Why no gate takes a key of `--set`.
fn unused(key: &str, patterns: &[Pattern], gates: &[GateFile]) -> PlanError {
    let key = key.to_owned();
    let named = gates.iter().filter(|g| is_named(patterns, &g.name, &g.tags, &g.path));
    let keys = named.flat_map(|g| g.settable.iter().copied());
    if GateFile::common_keys().contains(&key.as_str()) {
        let keys: BTreeSet<&str> = keys.collect();
        return PlanError::CommonSet { key, keys: keys.into_iter().map(str::to_owned).collect() };
    }
    let with_key = gates.iter().filter(|g| g.requires.set.contains(&key));
    let with_key: Vec<&str> = with_key.map(|g| g.name.as_str()).take(3).collect();
    let wanted = gates.iter().flat_map(|g| &g.requires.set).map(String::as_str);
    let hint = match with_key[..] {
        [] => did_you_mean(&key, wanted.chain(keys)),
        _ => Some(format!("`{}` would take it: select that", with_key.join("`, `"))),
    };
    PlanError::UnusedSet { key, hint }
}

fn unknown(pattern: &Pattern, gates: &[GateFile]) -> PlanError {
    let names = gates.iter().map(|g| g.name.as_str());
    match pattern {
        Pattern::Tag(tag) => {
            let tags = gates.iter().flat_map(|g| &g.tags).map(String::as_str);
            PlanError::UnknownTag { tag: tag.clone(), hint: did_you_mean(tag, tags) }
        }
        Pattern::Name(word) => {
            PlanError::UnknownGate { word: word.clone(), hint: did_you_mean(word, names) }
        }
        Pattern::All | Pattern::File(_) => PlanError::Nothing,
    }
}
