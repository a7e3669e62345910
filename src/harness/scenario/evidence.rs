//! Which gates are established on this machine by this build.

use super::GateEvidence;
use crate::harness::kind::Verdict;
use crate::harness::records::{BuildRecord, GateRun, MachineRecord, load};
use std::path::Path;

/// What the records say of a gate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GateState {
    /// Every planned trial is recorded, none failed, at least one passed.
    Green(GateEvidence),
    /// A trial failed.
    Red { run_id: String, trial: String, message: String },
    /// No complete run of this build on this machine covers it.
    Unknown,
}

/// The state of a gate by the latest run in `results` that covers it.
pub fn gate_state(results: &Path, gate: &str) -> GateState {
    let (build, machine) = (BuildRecord::current(), MachineRecord::current());
    let mut folders: Vec<_> =
        std::fs::read_dir(results).into_iter().flatten().flatten().map(|e| e.path()).collect();
    // Run ids start with the time.
    folders.sort();
    folders
        .iter()
        .rev()
        .filter_map(|folder| load(folder).ok())
        .filter(|run| run.run.build.digest == build.digest && run.run.machine.is_like(&machine))
        .find_map(|run| state_in(&run, gate))
        .unwrap_or(GateState::Unknown)
}

/// What one run says; `None` if it does not cover the gate completely.
fn state_in(run: &GateRun, gate: &str) -> Option<GateState> {
    let planned = run.run.gates.iter().find(|g| g.gate == gate)?.trials;
    let trials: Vec<_> = run.trials.iter().filter(|t| t.gate == gate).collect();
    let run_id = run.run.run_id.clone();
    if let Some(bad) = trials.iter().find(|t| matches!(t.verdict, Verdict::Fail | Verdict::Error)) {
        let (trial, message) = (bad.name.clone(), bad.message.clone());
        return Some(GateState::Red { run_id, trial, message });
    }
    let complete = run.is_complete() && trials.len() as u64 == planned;
    let passed = trials.iter().any(|t| t.verdict == Verdict::Pass);
    (complete && passed).then(|| {
        GateState::Green(GateEvidence { gate: gate.to_owned(), trials: planned, run_id, arm: None })
    })
}
