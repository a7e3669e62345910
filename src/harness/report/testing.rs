//! Made-up records for tests of pages.

use crate::backend::DeviceKind;
use crate::harness::records::{
    BuildRecord, DeviceRecord, GateRecord, GateRun, MachineRecord, RunKind, RunOptions, RunRecord,
    SCHEMA_VERSION, TrialRecord,
};
use crate::harness::spec::Track;
use std::collections::BTreeSet;

/// A machine that never was.
pub(in crate::harness) fn machine() -> MachineRecord {
    MachineRecord {
        cpu: Some("made-up processor".into()),
        architecture: "x86_64".into(),
        instruction_sets: vec!["avx2".into()],
        usable_processors: 2,
        memory_bytes: Some(1 << 34),
        system: None,
        kernel: None,
        host: None,
    }
}

/// A complete run of these trials, with a record of every gate they name.
pub(in crate::harness) fn gate_run(id: &str, trials: Vec<TrialRecord>) -> GateRun {
    let names: BTreeSet<&str> = trials.iter().map(|t| t.gate.as_str()).collect();
    let gates = names.iter().map(|name| GateRecord {
        gate: (*name).to_owned(),
        claim: "The made-up claim holds.".into(),
        track: Track::Contract,
        kind: "runner_probe".into(),
        tags: Vec::new(),
        path: format!("gates/{name}.yaml"),
        spec_digest: "0".repeat(64),
        trials: trials.iter().filter(|t| t.gate == *name).count() as u64,
        part: None,
    });
    let run = RunRecord {
        schema_version: SCHEMA_VERSION,
        kind: RunKind::GateRun,
        run_id: id.to_owned(),
        command: vec!["assay".into()],
        started: "2031-05-09T14:03:59Z".into(),
        finished: Some("2031-05-09T14:08:11Z".into()),
        elapsed_ms: 1234,
        build: BuildRecord::current(),
        machine: machine(),
        devices: vec![DeviceRecord {
            device: DeviceKind::Cpu,
            count: 1,
            detail: "made-up processor".into(),
        }],
        options: RunOptions { selection: vec!["all".into()], ..RunOptions::default() },
        gates: gates.collect(),
        not_applicable: Vec::new(),
        planned_trials: trials.len() as u64,
        pending: Vec::new(),
        unestablished: Vec::new(),
        last_line: None,
        merged: Vec::new(),
        missing_parts: Vec::new(),
    };
    GateRun::from_parts(run, trials)
}
