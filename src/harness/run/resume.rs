//! Continuing a run that was stopped or killed.

use super::RunError;
use crate::harness::kind::Verdict;
use crate::harness::records::{BuildRecord, GateRun, MachineRecord, RunOptions, TrialRecord, load};
use crate::units::build_digest;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// A run to continue.
#[derive(Debug)]
pub struct Previous {
    pub run: GateRun,
    /// Trials that need not run again, by name.
    pub done: BTreeMap<String, TrialRecord>,
    /// Trials that ended in an error and are tried again: name → attempts so far.
    pub retried: BTreeMap<String, u32>,
}

/// Finds and reads the run called `name`: a folder, or a run id below `out`.
///
/// # Errors
/// There is no such run, its records were changed, it was made by another build, on another machine,
/// of another part or selection of gates or with other values, or it is complete without an error.
pub fn previous(
    name: &str,
    out: &Path,
    build: &BuildRecord,
    machine: &MachineRecord,
    options: &RunOptions,
    planned: &[String],
    spec_digests: &BTreeMap<String, String>,
) -> Result<Previous, RunError> {
    let folder = find(name, out)?;
    let run = load(&folder)?;
    let refuse = |reason: String| RunError::Resume { run: folder.clone(), reason };
    if run.run.build.digest != build.digest {
        return Err(refuse(format!(
            "it was made by another build ({}, now {}); start a new run",
            short(&run.run.build.digest),
            short(&build.digest)
        )));
    }
    if !run.run.machine.is_like(machine) {
        let cpu = |m: &MachineRecord| m.cpu.clone().unwrap_or_else(|| "unknown".to_owned());
        return Err(refuse(format!(
            "it was made on another machine ({}, this is {}); start a new run",
            cpu(&run.run.machine),
            cpu(machine)
        )));
    }
    if !run.run.merged.is_empty() {
        let ids: Vec<&str> = run.run.merged.iter().map(|m| m.run_id.as_str()).collect();
        let reason = format!("it was merged from {}; continue those", ids.join(", "));
        return Err(refuse(reason));
    }
    let recorded = &run.run.options;
    if recorded.selection != options.selection {
        let words = |o: &RunOptions| o.selection.join(" ");
        let (was, is) = (words(recorded), words(options));
        return Err(refuse(format!(
            "it selected `{was}`, this selects `{is}`; name the same gates"
        )));
    }
    if recorded.partition != options.partition {
        let part = |o: &RunOptions| match &o.partition {
            Some(part) => format!("part {part}"),
            None => "the whole".to_owned(),
        };
        let (was, is) = (part(recorded), part(options));
        return Err(refuse(format!("it ran {was}, this is {is}; give the same --partition")));
    }
    if recorded.long != options.long {
        let with = if recorded.long { "with" } else { "without" };
        return Err(refuse(format!("it was made {with} --long; continue it the same way")));
    }
    if recorded.set != options.set {
        let reason = "it was made with other values of --set; give the same or start a new run";
        return Err(refuse(reason.to_owned()));
    }
    let planned: BTreeSet<&str> = planned.iter().map(String::as_str).collect();
    let foreign: Vec<&TrialRecord> =
        run.trials.iter().filter(|t| !planned.contains(t.name.as_str())).collect();
    if let Some(first) = foreign.first() {
        return Err(refuse(format!(
            "its gates have changed: they have no trial `{}` any more{}; start a new run",
            first.name,
            if foreign.len() > 1 { " (and others)" } else { "" }
        )));
    }
    let current = build_digest().to_string();
    let mut done = BTreeMap::new();
    let mut retried = BTreeMap::new();
    for trial in &run.trials {
        let same = spec_digests.get(&trial.gate) == Some(&trial.spec_digest)
            && trial.build_digest == current;
        // An error says nothing about the claim and is tried again; a failure is a result.
        if trial.verdict == Verdict::Error || !same {
            retried.insert(trial.name.clone(), trial.attempt);
        } else {
            done.insert(trial.name.clone(), trial.clone());
        }
    }
    if run.is_complete() && done.len() == planned.len() {
        let reason =
            "it is complete and none of its trials ended in an error: nothing is left to run";
        return Err(refuse(reason.to_owned()));
    }
    Ok(Previous { run, done, retried })
}

/// What the run called `name` was started with: a folder, or a run id below `out`.
///
/// # Errors
/// There is no such run, or its records were changed.
pub fn recorded_options(name: &str, out: &Path) -> Result<RunOptions, RunError> {
    Ok(load(&find(name, out)?)?.run.options)
}

fn find(name: &str, out: &Path) -> Result<PathBuf, RunError> {
    let candidates = [PathBuf::from(name), out.join(name), out.join(format!("{name}.partial"))];
    candidates.iter().find(|folder| folder.join("run.json").is_file()).cloned().ok_or_else(|| {
        RunError::Resume {
            run: PathBuf::from(name),
            reason: format!("there is no such run, here or in {}", out.display()),
        }
    })
}

fn short(digest: &str) -> &str {
    digest.get(..12).unwrap_or(digest)
}
