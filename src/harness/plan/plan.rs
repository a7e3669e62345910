//! The plan of a run.

use super::expand::expand;
use super::{Partition, Pattern, PlanError};
use crate::harness::kind::{Cell, Part};
use crate::harness::records::{DeviceRecord, GateRecord, NotApplicable, unestablished};
use crate::harness::spec::GateFile;
use std::path::{Path, PathBuf};

/// What decides a plan beside the files.
#[derive(Clone, Debug)]
pub struct PlanOptions {
    pub root: PathBuf,
    pub long: bool,
    pub devices: Vec<DeviceRecord>,
    pub patterns: Vec<Pattern>,
    pub partition: Option<Partition>,
}

/// One planned trial.
#[derive(Clone, Debug, PartialEq)]
pub struct Trial {
    /// Stable name, shared by filters, JUnit, records and reports.
    pub name: String,
    /// Index of its gate in the plan.
    pub gate: usize,
    pub cell: Cell,
    /// Why it cannot run here.
    pub skip: Option<String>,
    /// Trials of one group share a worker process.
    pub group: Option<String>,
}

/// A gate of the plan.
#[derive(Clone, Debug)]
pub struct PlannedGate {
    pub file: GateFile,
    pub part: Option<Part>,
    /// Trials of the gate, before names and `--partition` narrow them.
    pub trials: u64,
}

/// The trials of a run, in the order of gates and matrices.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    pub gates: Vec<PlannedGate>,
    pub trials: Vec<Trial>,
    pub not_applicable: Vec<NotApplicable>,
}

impl Plan {
    /// The gate of a trial.
    pub fn gate_of(&self, trial: &Trial) -> &GateFile {
        &self.gates[trial.gate].file
    }

    /// The gates as they are recorded; paths are relative to `root` where they lie inside.
    pub fn gate_records(&self, root: &Path) -> Vec<GateRecord> {
        let record = |planned: &PlannedGate| {
            let file = &planned.file;
            GateRecord {
                gate: file.name.clone(),
                claim: file.claim.clone(),
                track: file.track,
                kind: file.kind_name.to_owned(),
                tags: file.tags.clone(),
                path: file.path.strip_prefix(root).unwrap_or(&file.path).display().to_string(),
                spec_digest: file.digest.to_string(),
                trials: planned.trials,
                part: planned.part.clone(),
            }
        };
        self.gates.iter().map(record).collect()
    }

    /// What the run cannot establish, one sentence each.
    pub fn unestablished(&self, devices: &[DeviceRecord]) -> Vec<String> {
        let listed = |kind| self.trials.iter().filter(|t| t.cell.device == kind).count();
        unestablished(devices, listed, &self.not_applicable)
    }
}

/// Expands gates into the trials that the patterns and the partition select.
///
/// # Errors
/// Every gate that cannot be expanded, or that nothing is selected.
pub fn plan(files: Vec<GateFile>, options: &PlanOptions) -> Result<Plan, PlanError> {
    let mut plan = Plan::default();
    let mut faults = Vec::new();
    let mut any_selected = false;
    let mut used = vec![false; options.patterns.len()];
    for file in files {
        let at = plan.gates.len();
        let expansion = match expand(&file, at, options) {
            Ok(expansion) => expansion,
            Err(fault) => {
                faults.push(file.blame_set(fault, |alone| expand(alone, at, options).err()));
                continue;
            }
        };
        let count = expansion.trials.len() as u64;
        let mut any = false;
        let whole =
            |p: &Pattern| !p.is_about_trials() && p.selects(&file.name, &file.tags, &file.path, "");
        for trial in expansion.trials {
            let mut selected = false;
            for (pattern, used) in options.patterns.iter().zip(&mut used) {
                if pattern.selects(&file.name, &file.tags, &file.path, &trial.name) {
                    (selected, *used) = (true, true);
                }
            }
            let mine = options.partition.is_none_or(|p| p.includes(&trial.name));
            if selected && mine {
                plan.trials.push(trial);
            }
            any |= selected;
        }
        any_selected |= any;
        if any || options.patterns.iter().any(whole) {
            plan.not_applicable.extend(expansion.not_applicable);
            plan.gates.push(PlannedGate { file, part: expansion.part, trials: count });
        }
    }
    if !faults.is_empty() {
        return Err(PlanError::Files(faults));
    }
    if let Some((Pattern::Name(word), _)) =
        options.patterns.iter().zip(used).find(|(p, used)| p.is_about_trials() && !used)
    {
        return Err(PlanError::NoTrial(word.clone()));
    }
    // Of few trials a part may have none: it is run as the others are, or they could not be joined.
    if plan.trials.is_empty() && !(options.partition.is_some() && any_selected) {
        return Err(PlanError::Nothing);
    }
    Ok(plan)
}
