//! Building the binary with switches and running gates with it.

use super::Kill;
use crate::harness::records::BuildRecord;
use crate::units::{BUILD, MUTANT_VARIABLE, Mutant};
use serde::Deserialize;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Why a survey could not be made.
#[derive(Debug, thiserror::Error)]
pub enum MutateError {
    #[error("cannot run {program}: {source}")]
    Start { program: String, source: std::io::Error },
    #[error("building with the feature `mutants` failed:\n{0}")]
    Build(String),
    #[error(
        "with every switch off {count} trials fail, the first is {first}; a survey needs gates that pass"
    )]
    Baseline { count: usize, first: String },
    #[error("{0} has no switches; it was built without the feature `mutants`")]
    NoSwitches(String),
    #[error("the run of the gates came to nothing: {0}")]
    Run(String),
    #[error("cannot write {}: {source}", path.display())]
    Write { path: PathBuf, source: std::io::Error },
    #[error(transparent)]
    Gates(#[from] crate::harness::PlanError),
}

/// What is surveyed.
#[derive(Clone, Debug)]
pub struct Subject {
    pub root: PathBuf,
    /// A binary built with the feature `mutants`.
    pub program: PathBuf,
    /// Run every gate at once instead of those about the switch's region first.
    pub all_gates: bool,
}

/// Builds the binary with switches, beside the ordinary one. Dependencies that were compiled
/// already are used again.
///
/// # Errors
/// cargo is missing or the build fails.
pub fn build(root: &Path) -> Result<PathBuf, MutateError> {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let target = root.join("target/mutants");
    let mut command = Command::new(&cargo);
    command
        .current_dir(root)
        .args(["build", "--quiet", "--locked", "--bin", "assay", "--features", "mutants"])
        .arg("--target-dir")
        .arg(&target);
    if std::env::var_os("CARGO_BUILD_BUILD_DIR").is_none() {
        // Only the finished binary is kept apart: what is compiled on the way is shared.
        command.env("CARGO_BUILD_BUILD_DIR", root.join("target"));
    }
    let release = BUILD.profile == "release";
    if release {
        command.arg("--release");
    }
    let output =
        command.output().map_err(|source| MutateError::Start { program: cargo.clone(), source })?;
    if !output.status.success() {
        return Err(MutateError::Build(String::from_utf8_lossy(&output.stderr).into_owned()));
    }
    let program = target.join(if release { "release" } else { "debug" });
    Ok(program.join(format!("assay{}", std::env::consts::EXE_SUFFIX)))
}

/// What a run of gates came to.
#[derive(Debug)]
pub(super) struct Finished {
    pub(super) failures: Vec<Kill>,
    pub(super) trials: u64,
    pub(super) gates: u64,
    pub(super) build: BuildRecord,
}

/// The parts of `gates run --json` that a survey reads.
#[derive(Deserialize)]
struct Summary {
    failures: Vec<Failure>,
    counts: serde_json::Map<String, Value>,
    gates: Vec<Value>,
    run: Run,
}

#[derive(Deserialize)]
struct Run {
    build: BuildRecord,
}

#[derive(Deserialize)]
struct Failure {
    name: String,
    verdict: crate::harness::Verdict,
    message: String,
}

/// Runs gates in a process of the binary with switches; its records are thrown away.
pub(super) fn gates(
    subject: &Subject,
    mutant: Option<&Mutant>,
    selection: &[String],
) -> Result<Finished, MutateError> {
    let name = mutant.map_or("baseline", |m| m.name);
    let out = std::env::temp_dir().join(format!("assay-mutate-{}-{name}", std::process::id()));
    let mut command = Command::new(&subject.program);
    command
        .current_dir(&subject.root)
        .args(["gates", "run", "--json", "--fail-fast", "--out"])
        .arg(&out)
        .args(selection)
        .env_remove(MUTANT_VARIABLE);
    if let Some(mutant) = mutant {
        command.env(MUTANT_VARIABLE, mutant.name);
    }
    let program = subject.program.display().to_string();
    let output = command.output().map_err(|source| MutateError::Start { program, source });
    let _ = std::fs::remove_dir_all(&out);
    let output = output?;
    let summary: Summary = serde_json::from_slice(&output.stdout)
        .map_err(|_| MutateError::Run(String::from_utf8_lossy(&output.stderr).trim().to_owned()))?;
    let ran = ["pass", "fail", "error", "measured"];
    Ok(Finished {
        trials: ran.iter().filter_map(|key| summary.counts.get(*key)?.as_u64()).sum(),
        gates: summary.gates.len() as u64,
        failures: summary
            .failures
            .into_iter()
            .map(|f| Kill { trial: f.name, verdict: f.verdict, message: f.message })
            .collect(),
        build: summary.run.build,
    })
}
