//! One defect against the gates, the likeliest gates first.

use super::run::gates;
use super::{MutateError, Mutation, Subject, Survey};
use crate::harness::Pattern;
use crate::harness::plan::read_gates;
use crate::harness::records::BuildRecord;
use crate::units::Mutant;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// What the gates came to with every switch off.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Baseline {
    pub build: BuildRecord,
    pub gates: u64,
    pub trials: u64,
    pub duration_ms: u64,
}

/// A gate of one trial that costs nothing: its record says how the binary was built.
const PROBE: &str = "gate: probe\nclaim: A trial runs.\ntrack: resource\nkind: runner_probe\n\
                     behaviour: [pass]\n";

/// Checks that the binary has switches.
fn check_switches(subject: &Subject) -> Result<(), MutateError> {
    let path = std::env::temp_dir().join(format!("assay-mutate-{}.yaml", std::process::id()));
    let written = std::fs::write(&path, PROBE);
    let run = written
        .map_err(|source| MutateError::Write { path: path.clone(), source })
        .and_then(|()| gates(subject, None, &[path.display().to_string()]));
    // What is left of it lies among temporary files.
    let _ = std::fs::remove_file(&path);
    if run?.build.features.split(',').any(|feature| feature == "mutants") {
        Ok(())
    } else {
        Err(MutateError::NoSwitches(subject.program.display().to_string()))
    }
}

/// Checks that the binary has switches, and that the gates pass while none is on.
///
/// # Errors
/// The binary was built without switches, which is found before the gates run; they do not pass or
/// cannot be run.
pub fn baseline(subject: &Subject) -> Result<Baseline, MutateError> {
    check_switches(subject)?;
    let begun = Instant::now();
    let run = gates(subject, None, &["all".to_owned()])?;
    if let Some(first) = run.failures.first() {
        let first = format!("{} ({})", first.trial, first.message);
        return Err(MutateError::Baseline { count: run.failures.len(), first });
    }
    let duration_ms = begun.elapsed().as_millis() as u64;
    Ok(Baseline { build: run.build, gates: run.gates, trials: run.trials, duration_ms })
}

/// The selections that a defect is tried against, in order: gates tagged with its region, then
/// every gate.
///
/// # Errors
/// A gate file cannot be read.
pub fn rounds(subject: &Subject, region: &str) -> Result<Vec<String>, MutateError> {
    let gates = read_gates(Some(&subject.root), &[Pattern::All], &Default::default())?;
    let tagged = gates.iter().any(|g| g.tags.iter().any(|t| t == region));
    let first = (tagged && !subject.all_gates).then(|| format!("tag:{region}"));
    Ok(first.into_iter().chain(["all".to_owned()]).collect())
}

/// Runs the gates with one switch on, round by round, until a trial fails.
///
/// # Errors
/// The gates cannot be run.
pub fn survey(subject: &Subject, mutant: &Mutant) -> Result<Mutation, MutateError> {
    let begun = Instant::now();
    let mut mutation = Mutation {
        switch: mutant.name.into(),
        region: mutant.region.into(),
        defect: mutant.defect.into(),
        killed_by: None,
        trials: 0,
        duration_ms: 0,
    };
    for selection in rounds(subject, mutant.region)? {
        let run = gates(subject, Some(mutant), &[selection])?;
        mutation.trials += run.trials;
        // A failed comparison says more than a panic beside it.
        mutation.killed_by =
            run.failures.into_iter().min_by_key(|f| f.verdict != crate::harness::Verdict::Fail);
        if mutation.killed_by.is_some() {
            break;
        }
    }
    mutation.duration_ms = begun.elapsed().as_millis() as u64;
    Ok(mutation)
}

/// Writes the record of a survey into its folder: `<out>/<run-id>.partial` until it is finished.
/// Returns the folder.
///
/// # Errors
/// The folder or the file cannot be written.
pub fn store(survey: &Survey, out: &Path) -> Result<PathBuf, MutateError> {
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |source| MutateError::Write { path, source }
    };
    let done = out.join(&survey.run.run_id);
    let partial = out.join(format!("{}.partial", survey.run.run_id));
    std::fs::create_dir_all(&partial).map_err(failed(&partial))?;
    let (new, record) = (partial.join("record.json.new"), partial.join("record.json"));
    let text = serde_json::to_string_pretty(survey)
        .map_err(|e| failed(&record)(std::io::Error::other(e)))?;
    std::fs::write(&new, text + "\n").map_err(failed(&new))?;
    std::fs::rename(&new, &record).map_err(failed(&record))?;
    if survey.run.finished.is_none() {
        return Ok(partial);
    }
    std::fs::rename(&partial, &done).map_err(failed(&done))?;
    Ok(done)
}
