//! The record that a run starts from, and whether an earlier run may go on.

use super::run::{RunError, RunRequest};
use super::store::StoredRun;
use super::{
    PeerRecord, Plan, SCENARIO_RECORD_VERSION, ScenarioFacts, ScenarioKind, ScenarioRecord,
};
use crate::harness::records::{BuildRecord, MachineRecord, run_id};
use crate::units::utc_now;
use std::collections::BTreeMap;

pub(super) fn record(request: &RunRequest<'_>) -> ScenarioRecord {
    let file = request.file;
    let spec = &file.spec;
    let started = utc_now();
    ScenarioRecord {
        schema_version: SCENARIO_RECORD_VERSION,
        kind: ScenarioKind::ScenarioRun,
        run_id: match &request.part {
            Some(part) => part.run_id.clone(),
            None => format!("{}-{}", run_id(&started), file.name()),
        },
        command: request.command.clone(),
        started,
        finished: None,
        build: BuildRecord::current(),
        machine: MachineRecord::current(),
        scenario: ScenarioFacts {
            question: file.question().to_owned(),
            track: spec.track,
            path: request.recorded_path.clone(),
            text: file.text.clone(),
            spec_digest: file.digest.to_string(),
            device: request.device,
            model: request.model.to_string(),
            model_digest: request.model_digest.clone(),
            set: request.set.clone(),
            differs_in: spec.differs_in.clone(),
            bound: spec.bound,
            error_rates: request.error_rates.clone(),
            expected: spec.expect_decision.get(&request.device).copied(),
        },
        plan: request.part.as_ref().map_or_else(|| Plan::of(file), |part| part.plan.clone()),
        gates: request.gates.clone(),
        arms: BTreeMap::new(),
        peers: peers(request),
        beside: request.beside.clone(),
        quality: None,
        refusals: Vec::new(),
        parts: 1,
        last_line: None,
    }
}

fn peers(request: &RunRequest<'_>) -> BTreeMap<String, PeerRecord> {
    let command = |name: &String| request.file.arms()[name].command.clone().unwrap_or_default();
    let peers = Plan::of(request.file).peers;
    peers
        .into_iter()
        .map(|name| {
            let record = PeerRecord { command: command(&name), ..PeerRecord::default() };
            (name, record)
        })
        .collect()
}

/// Checks that an earlier run is the same experiment on the same build and machine.
pub(super) fn resumable(stored: &StoredRun, fresh: &ScenarioRecord) -> Result<(), RunError> {
    let old = &stored.content.run;
    let reason = if old.finished.is_some() {
        "it is complete"
    } else if old.scenario.spec_digest != fresh.scenario.spec_digest {
        "the scenario file has changed"
    } else if old.build.digest != fresh.build.digest {
        "the build has changed"
    } else if !old.machine.is_like(&fresh.machine) {
        "this is another machine"
    } else if (old.scenario.device, &old.scenario.set)
        != (fresh.scenario.device, &fresh.scenario.set)
        || old.scenario.model != fresh.scenario.model
    {
        "device, model or --set values differ"
    } else {
        return Ok(());
    };
    Err(RunError::Resume { folder: stored.folder.clone(), reason: reason.into() })
}
