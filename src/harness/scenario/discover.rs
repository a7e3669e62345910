//! Scenario files of a project, by name.

use super::ScenarioFile;
use crate::harness::spec::{Diagnostic, did_you_mean};
use std::path::{Path, PathBuf};

/// The folder of scenario files within a project.
pub const SCENARIOS: &str = "scenarios";

/// Every `.yaml` below `scenarios/`, in the order of paths.
fn files(root: &Path) -> Vec<PathBuf> {
    let mut open = vec![root.join(SCENARIOS)];
    let mut found = Vec::new();
    while let Some(folder) = open.pop() {
        for entry in std::fs::read_dir(&folder).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.is_dir() {
                open.push(path);
            } else if path.extension().is_some_and(|e| e == "yaml") {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

/// The scenarios selected by names and paths, every one if nothing (or `all`) is selected. A file
/// of the project is named relative to its folder in messages.
///
/// # Errors
/// A file that does not parse, a name that no scenario has, a name that two have.
pub fn scenarios(root: &Path, selection: &[String]) -> Result<Vec<ScenarioFile>, Diagnostic> {
    let is_path = |s: &str| s.contains(['/', '\\']) || s.ends_with(".yaml");
    let (paths, names): (Vec<&String>, Vec<&String>) = selection.iter().partition(|s| is_path(s));
    let mut selected: Vec<ScenarioFile> = Vec::new();
    if names.is_empty() && !paths.is_empty() {
        return paths.iter().map(|p| ScenarioFile::read(Path::new(p))).collect();
    }
    let all: Vec<ScenarioFile> =
        files(root).iter().map(|p| ScenarioFile::read(p)).collect::<Result<_, _>>()?;
    for (i, file) in all.iter().enumerate() {
        if let Some(other) = all[..i].iter().find(|o| o.name() == file.name()) {
            let message =
                format!("`{}` is the name of {} as well", file.name(), other.path.display());
            return Err(Diagnostic::new(&file.path, message));
        }
    }
    if names.is_empty() || names.iter().any(|n| *n == "all") {
        selected = all;
    } else {
        for name in names {
            let Some(file) = all.iter().find(|f| f.name() == name) else {
                let message = format!("no scenario is called `{name}`");
                return Err(Diagnostic::new(&root.join(SCENARIOS), message)
                    .help(did_you_mean(name, all.iter().map(ScenarioFile::name))));
            };
            selected.push(file.clone());
        }
    }
    for path in paths {
        selected.push(ScenarioFile::read(Path::new(path))?);
    }
    Ok(selected)
}
