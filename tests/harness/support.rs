//! Runs the binary in a project of its own.

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// A folder with gates, removed afterwards.
pub(crate) struct Project {
    folder: tempfile::TempDir,
}

impl Project {
    /// A project whose gate files are these: name and the keys after the common ones.
    pub(crate) fn new(gates: &[(&str, &str)]) -> Project {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("gates")).unwrap();
        let project = Project { folder };
        for (name, keys) in gates {
            project.write(name, keys);
        }
        project
    }

    /// Writes a `runner_probe` gate.
    pub(crate) fn write(&self, name: &str, keys: &str) {
        let text = format!(
            "gate: {name}\nclaim: The probe does what it is told.\ntrack: resource\n\
             kind: runner_probe\n{keys}\n"
        );
        std::fs::write(self.path().join(format!("gates/{name}.yaml")), text).unwrap();
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    /// The command `assay` in the project.
    pub(crate) fn assay(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_assay"));
        command.current_dir(self.path()).args(arguments).env("COLUMNS", "80");
        command
    }

    /// Runs `assay` to its end: exit code, stdout, stderr.
    pub(crate) fn run(&self, arguments: &[&str]) -> (i32, String, String) {
        ended(self.assay(arguments).output().unwrap())
    }

    /// The run folders, by name.
    pub(crate) fn runs(&self) -> Vec<PathBuf> {
        let mut runs: Vec<PathBuf> = std::fs::read_dir(self.path().join("results"))
            .map(|list| list.map(|e| e.unwrap().path()).collect())
            .unwrap_or_default();
        runs.sort();
        runs
    }
}

pub(crate) fn ended(output: Output) -> (i32, String, String) {
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap_or(-1), text(output.stdout), text(output.stderr))
}

/// The lines of a run's trials.
pub(crate) fn trials(run: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(run.join("trials.jsonl")).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// The sorted names of trials.
pub(crate) fn names(trials: &[Value]) -> Vec<String> {
    let mut names: Vec<String> =
        trials.iter().map(|t| t["name"].as_str().unwrap().to_owned()).collect();
    names.sort();
    names
}
