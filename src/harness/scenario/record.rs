//! The recorded run of a scenario: `run.json` and `samples.jsonl`.

use super::spec::{Block, Bound};
use super::{
    BesideRecord, Comparison, Decision, ErrorSummary, Line, PeerRecord, Plan, QualityRecord,
    Verdict, decide, peer_comparisons,
};
use crate::backend::cuda::Join;
use crate::backend::{DeviceKind, Policy};
use crate::harness::records::{BuildRecord, MachineRecord};
use crate::harness::spec::Track;
use crate::units::Exit;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

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
    /// Live peers, by arm.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub peers: BTreeMap<String, PeerRecord>,
    /// Arms of earlier records, shown beside.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub beside: BTreeMap<String, BesideRecord>,
    /// What the candidates lose in quality; absent where the scenario does not ask.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quality: Option<QualityRecord>,
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
    /// Digest of the model's folder, where live peers are compared with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model_digest: Option<String>,
    /// `--set` values that took part.
    pub set: BTreeMap<String, String>,
    pub differs_in: BTreeSet<Block>,
    pub bound: Option<Bound>,
    /// How often the procedure errs on this machine, where that was established when the run
    /// started.
    #[serde(default)]
    pub error_rates: Option<ErrorSummary>,
    pub expected: Option<Decision>,
}

/// A gate that was green when the run started.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GateEvidence {
    pub gate: String,
    pub trials: u64,
    pub run_id: String,
    /// The arm whose own build ran it; absent where it was this build.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arm: Option<String>,
}

/// One arm.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ArmRecord {
    pub policy: Policy,
    pub threads: usize,
    /// The revision it was built from, where it is another build.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<String>,
    /// Rewrites of the device's own that it left undone; they change no bit, and no manifest.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub apart: Vec<Join>,
    /// Share of its speed that was taken away on purpose.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slowdown_ratio: Option<f64>,
    pub manifest: serde_json::Value,
    /// Bytes that one single-token step reads at least, a sequence's share of them, one per point.
    pub bytes_per_token: Vec<u64>,
    /// Where the time of its steps goes, where the scenario asks.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub regions: Vec<StepRegions>,
}

/// The regions of one step of an arm, each timed by itself when the arm was warm.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StepRegions {
    /// Rows of the step: tokens of a prompt, or one for each sequence.
    pub rows: u64,
    /// Tokens before it.
    pub context_tokens: u64,
    pub regions: Vec<RegionTime>,
}

/// All launches of a region in a step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RegionTime {
    pub region: String,
    pub launches: u64,
    /// Of all of them, replayed one after the other.
    pub time_us: f64,
    /// Fewest bytes that they move through memory.
    pub bytes: u64,
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
            return self.within_budgets(verdict);
        }
        let reasons = self.run.refusals.iter().chain(&verdict.reasons).cloned().collect();
        Verdict { decision: Decision::Invalid, reasons, ..verdict }
    }

    /// The verdict with what quality says: a budget that is exceeded declines what speed admits.
    fn within_budgets(&self, mut verdict: Verdict) -> Verdict {
        let Some(quality) = &self.run.quality else { return verdict };
        let exceeded = quality.exceeded();
        if !exceeded.is_empty() && verdict.decision != Decision::Invalid {
            verdict.decision = Decision::Decline;
            verdict.reasons.splice(0..0, exceeded);
        }
        if let QualityRecord::Unavailable { reason } = quality {
            verdict.reasons.push(format!("speed alone is decided: {reason}"));
        }
        verdict
    }

    /// The ratios of a live peer to the baseline, or why none is shown: it stopped, its weights were
    /// not declared to come from this model, or there are too few quads.
    pub fn peer_ratios(&self, peer: &str) -> Result<Vec<Comparison>, String> {
        let record = self.run.peers.get(peer).ok_or("it was not started")?;
        if let Some(problem) = &record.problem {
            return Err(problem.clone());
        }
        match (&self.run.scenario.model_digest, &record.weights_from) {
            (None, _) => return Err("the model has no folder to compare with".into()),
            (_, None) => {
                return Err("it declares no digest of the folder its weights come from".into());
            }
            (Some(ours), Some(theirs)) if ours != theirs => {
                return Err(format!(
                    "its weights come from another folder ({}) than the model ({})",
                    theirs.get(..12).unwrap_or(theirs),
                    ours.get(..12).unwrap_or(ours)
                ));
            }
            _ => {}
        }
        let found = peer_comparisons(&self.run.plan, &self.lines, peer);
        if found.is_empty() { Err("no quad of it counts".into()) } else { Ok(found) }
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
