//! The recorded run of a scenario: `run.json` and `samples.jsonl`.

use super::decide::kept_series;
use super::spec::{Block, Bound, ErrorRateSpec};
use super::{Decision, Line, Plan, Verdict, decide};
use crate::backend::{DeviceKind, Policy};
use crate::harness::records::{BuildRecord, MachineRecord};
use crate::harness::spec::Track;
use crate::harness::stats::{ErrorRates, LookPlan, error_rates};
use crate::units::Exit;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// The seed of resampling: any fixed one, so that a report renders the same twice.
const RESAMPLING_SEED: u64 = 1;

/// Version of the record format. Older versions stay readable; newer ones are refused.
pub const SCENARIO_RECORD_VERSION: u32 = 1;

/// What kind of record this is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ScenarioKind {
    ScenarioRun,
}

/// `run.json` of a scenario: everything that is not a sample.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScenarioRecord {
    pub schema_version: u32,
    pub kind: ScenarioKind,
    pub run_id: String,
    /// The command line, as typed.
    pub command: Vec<String>,
    /// RFC 3339, UTC.
    pub started: String,
    /// RFC 3339, UTC; absent until the run is complete.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finished: Option<String>,
    pub build: BuildRecord,
    pub machine: MachineRecord,
    pub scenario: ScenarioFacts,
    pub plan: Plan,
    /// The gates that the arms rest on, and the run that established each.
    pub gates: Vec<GateEvidence>,
    /// The arms as they executed; empty until the first launch.
    pub arms: BTreeMap<String, ArmRecord>,
    /// Why the run is invalid whatever was measured (arms that differ in more than they may).
    pub refusals: Vec<String>,
    /// Parts the run was measured in: more than one after `--resume`.
    pub parts: u32,
    /// Digest of the last line of `samples.jsonl`; absent until the run is complete.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_line: Option<String>,
}

/// What the file says.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScenarioFacts {
    pub question: String,
    pub track: Track,
    /// Path of the file, relative to the project folder where it lies inside.
    pub path: String,
    /// The file itself.
    pub text: String,
    /// SHA-256 of the file.
    pub spec_digest: String,
    /// The profile that was taken.
    pub device: DeviceKind,
    /// The model, in words.
    pub model: String,
    /// `--set` values that took part.
    pub set: BTreeMap<String, String>,
    pub differs_in: BTreeSet<Block>,
    pub bound: Option<Bound>,
    pub error_rates: Option<ErrorRateSpec>,
    pub expected: Option<Decision>,
}

/// A gate that was green when the run started.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GateEvidence {
    pub gate: String,
    pub trials: u64,
    pub run_id: String,
}

/// One arm.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ArmRecord {
    pub policy: Policy,
    pub threads: usize,
    pub manifest: serde_json::Value,
    /// Bytes that one single-token step reads at least, one per point.
    pub bytes_per_token: Vec<u64>,
}

/// A run with its samples; the content of `record.json`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScenarioRun {
    pub run: ScenarioRecord,
    pub lines: Vec<Line>,
}

impl ScenarioRun {
    /// The decision, from the records alone.
    pub fn verdict(&self) -> Verdict {
        let verdict = decide(&self.run.plan, &self.lines, true).unwrap_or_default();
        if self.run.refusals.is_empty() {
            return verdict;
        }
        let reasons = self.run.refusals.iter().chain(&verdict.reasons).cloned().collect();
        Verdict { decision: Decision::Invalid, reasons, ..verdict }
    }

    /// Error rates resampled out of this run, where the scenario asks for them, or why there are
    /// none.
    pub fn error_rates(&self) -> Option<Result<ErrorRates, String>> {
        let spec = self.run.scenario.error_rates.as_ref()?;
        let plan = &self.run.plan;
        let metric = plan.rules.first()?.ratio;
        let (point, arm) = plan.series().next()?;
        let series = kept_series(plan, &self.lines, point, arm, metric);
        let looks = LookPlan {
            quads_per_launch: spec.quads.first().copied().unwrap_or(1) / spec.launches.max(1),
            quads: spec.quads.clone(),
        };
        let rates =
            error_rates(&series, &looks, spec.pseudo_runs, spec.slowdown_ratio, RESAMPLING_SEED);
        Some(rates.map_err(|e| e.to_string()))
    }

    /// The exit code of this decision.
    pub fn exit(&self) -> Exit {
        exit(self.verdict().decision, self.run.scenario.expected)
    }
}

/// The exit code of a decision, given what the file expects.
pub fn exit(decision: Decision, expected: Option<Decision>) -> Exit {
    match (decision, expected) {
        (found, Some(expected)) if found == expected => Exit::Success,
        (Decision::Admit, None) => Exit::Success,
        (Decision::Inconclusive | Decision::Invalid, _) => Exit::Inconclusive,
        (Decision::Admit | Decision::Decline, _) => Exit::Fail,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exit_codes_compare_with_the_expectation() {
        use Decision::{Admit, Decline, Inconclusive, Invalid};
        for (decision, expected, code) in [
            (Admit, None, Exit::Success),
            (Decline, None, Exit::Fail),
            (Inconclusive, None, Exit::Inconclusive),
            (Invalid, None, Exit::Inconclusive),
            (Decline, Some(Decline), Exit::Success),
            (Admit, Some(Decline), Exit::Fail),
            (Decline, Some(Admit), Exit::Fail),
            (Inconclusive, Some(Admit), Exit::Inconclusive),
            (Invalid, Some(Decline), Exit::Inconclusive),
            (Inconclusive, Some(Inconclusive), Exit::Success),
        ] {
            assert_eq!(exit(decision, expected), code, "{decision:?} {expected:?}");
        }
    }
}
