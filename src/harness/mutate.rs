//! Can the gates fail? Plants one defect at a time and runs the gates until one notices.

use super::plan::read_gates;
use crate::harness::Pattern;
use crate::units::{BUILD, MUTANT_VARIABLE, Mutant};
use serde::Serialize;
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
    #[error("with every switch off {0} trials fail; a survey needs gates that pass")]
    Baseline(u64),
    #[error("the run of the gates came to nothing: {0}")]
    Run(String),
    #[error(transparent)]
    Gates(#[from] super::PlanError),
}

/// What is surveyed.
#[derive(Clone, Debug)]
pub struct Subject {
    pub root: PathBuf,
    /// A binary built with the feature `mutants`.
    pub program: PathBuf,
    /// Skip the first round with the gates about the switch's region only.
    pub all_gates: bool,
}

/// What became of one planted defect.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Mutation {
    pub switch: String,
    pub region: String,
    pub defect: String,
    /// The first trial that failed; `None`: the defect survived every gate.
    pub killed_by: Option<String>,
    /// Trials that ran until then.
    pub trials: u64,
}

/// Builds the binary with switches, beside the ordinary one.
///
/// # Errors
/// cargo is missing or the build fails.
pub fn build(root: &Path) -> Result<PathBuf, MutateError> {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let target = root.join("target/mutants");
    let mut command = Command::new(&cargo);
    command
        .current_dir(root)
        .args(["build", "--quiet", "--bin", "assay", "--features", "mutants", "--target-dir"])
        .arg(&target);
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

/// Checks that the gates pass while no switch is on.
///
/// # Errors
/// They do not, or cannot be run.
pub fn baseline(subject: &Subject) -> Result<(), MutateError> {
    let run = run_gates(subject, None, &["all".to_owned()])?;
    if run.failures.is_empty() {
        Ok(())
    } else {
        Err(MutateError::Baseline(run.failures.len() as u64))
    }
}

/// Runs the gates with one switch on: those tagged with its region first, then all of them, until
/// a trial fails.
///
/// # Errors
/// The gates cannot be run.
pub fn survey(subject: &Subject, mutant: &Mutant) -> Result<Mutation, MutateError> {
    let mut rounds = Vec::new();
    if !subject.all_gates && has_tag(subject, mutant.region)? {
        rounds.push(vec![format!("tag:{}", mutant.region)]);
    }
    rounds.push(vec!["all".to_owned()]);
    let mut mutation = Mutation {
        switch: mutant.name.into(),
        region: mutant.region.into(),
        defect: mutant.defect.into(),
        killed_by: None,
        trials: 0,
    };
    for selection in rounds {
        let run = run_gates(subject, Some(mutant), &selection)?;
        mutation.trials += run.trials;
        mutation.killed_by = run.failures.into_iter().next();
        if mutation.killed_by.is_some() {
            break;
        }
    }
    Ok(mutation)
}

fn has_tag(subject: &Subject, region: &str) -> Result<bool, MutateError> {
    let gates = read_gates(Some(&subject.root), &[Pattern::All], &Default::default())?;
    Ok(gates.iter().any(|g| g.tags.iter().any(|t| t == region)))
}

struct Finished {
    failures: Vec<String>,
    trials: u64,
}

/// Runs gates in a process of the mutated binary; its records are thrown away.
fn run_gates(
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
    let failed = || MutateError::Run(String::from_utf8_lossy(&output.stderr).trim().to_owned());
    let summary: Value = serde_json::from_slice(&output.stdout).map_err(|_| failed())?;
    let failures = summary.get("failures").and_then(Value::as_array).ok_or_else(failed)?;
    let failures = failures.iter().filter_map(|f| f.get("name")?.as_str().map(str::to_owned));
    let counts = summary.get("counts").and_then(Value::as_object).ok_or_else(failed)?;
    let ran = ["pass", "fail", "error", "measured"];
    let trials = ran.iter().filter_map(|key| counts.get(*key)?.as_u64()).sum();
    Ok(Finished { failures: failures.collect(), trials })
}
