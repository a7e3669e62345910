//! Two gate runs, trial by trial.

use super::runs::provenance;
use super::{Fact, Found, RunComparison, Side};
use crate::harness::kind::Verdict;
use crate::harness::records::{Counts, GateRun, RunOptions, TrialRecord, summarise};
use serde::Serialize;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// What became of a trial from the left run to the right one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Change {
    /// It says less, or the opposite: passed and now fails, is skipped or is gone.
    Worse,
    /// It says more.
    Better,
    /// Another verdict of the same weight.
    Other,
}

/// A trial whose verdict differs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TrialChange {
    pub name: String,
    pub change: Change,
    /// `None`: the left run has no such trial.
    pub left: Option<Verdict>,
    pub right: Option<Verdict>,
    /// The message of the right run, or the left one's where it has none.
    pub message: String,
}

/// A field of the evidence that differs where the verdict does not.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct EvidenceChange {
    pub name: String,
    pub field: String,
    pub left: Value,
    pub right: Value,
}

/// How two gate runs differ.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct GateComparison {
    /// Trials in both runs with the same verdict.
    pub same: u64,
    pub left: Counts,
    pub right: Counts,
    /// Worse ones first, then better ones, each by name.
    pub changes: Vec<TrialChange>,
    /// By trial, then field.
    pub evidence: Vec<EvidenceChange>,
    /// Gates that only one run selected, with the number of its trials there: not compared.
    pub only_left: BTreeMap<String, u64>,
    pub only_right: BTreeMap<String, u64>,
}

impl GateComparison {
    /// Trials that got worse.
    pub fn worse(&self) -> usize {
        self.changes.iter().filter(|c| c.change == Change::Worse).count()
    }

    /// Trials that got better.
    pub fn better(&self) -> usize {
        self.changes.iter().filter(|c| c.change == Change::Better).count()
    }
}

/// Compares two gate runs.
pub(super) fn compare_gate_runs(left: &GateRun, right: &GateRun) -> RunComparison {
    let gates = |run: &GateRun| -> BTreeSet<String> {
        run.run.gates.iter().map(|g| g.gate.clone()).collect()
    };
    let (in_left, in_right) = (gates(left), gates(right));
    let by_name = |run: &GateRun, other: &BTreeSet<String>| -> BTreeMap<String, TrialRecord> {
        let shared = run.trials.iter().filter(|t| other.contains(&t.gate));
        shared.map(|t| (t.name.clone(), t.clone())).collect()
    };
    let (l, r) = (by_name(left, &in_right), by_name(right, &in_left));
    let names: BTreeSet<&String> = l.keys().chain(r.keys()).collect();
    let (mut same, mut changes, mut evidence) = (0, Vec::new(), Vec::new());
    for name in names {
        let (a, b) = (l.get(name), r.get(name));
        let verdicts = (a.map(|t| t.verdict), b.map(|t| t.verdict));
        if verdicts.0 == verdicts.1 {
            same += 1;
            if let (Some(a), Some(b)) = (a, b) {
                evidence.extend(evidence_of(a, b));
            }
            continue;
        }
        let message = b.or(a).map_or_else(String::new, |t| t.message.clone());
        changes.push(TrialChange {
            name: name.clone(),
            change: change(verdicts.0, verdicts.1),
            left: verdicts.0,
            right: verdicts.1,
            message,
        });
    }
    changes.sort_by(|a, b| (a.change, &a.name).cmp(&(b.change, &b.name)));
    let only = |run: &GateRun, other: &BTreeSet<String>| {
        let mut counted: BTreeMap<String, u64> = BTreeMap::new();
        for trial in run.trials.iter().filter(|t| !other.contains(&t.gate)) {
            *counted.entry(trial.gate.clone()).or_default() += 1;
        }
        counted
    };
    let found = GateComparison {
        same,
        left: summarise(left).counts,
        right: summarise(right).counts,
        changes,
        evidence,
        only_left: only(left, &in_right),
        only_right: only(right, &in_left),
    };
    RunComparison {
        left: side(left),
        right: side(right),
        facts: facts(left, right),
        found: Found::GateRuns(found),
    }
}

fn side(run: &GateRun) -> Side {
    let summary = summarise(run);
    Side {
        run_id: run.run.run_id.clone(),
        started: run.run.started.clone(),
        outcome: summary.word().to_owned(),
    }
}

/// Weight of a verdict: what it says in favour of the claim.
fn weight(verdict: Option<Verdict>) -> u8 {
    match verdict {
        Some(Verdict::Pass) => 3,
        Some(Verdict::Measured) => 2,
        Some(Verdict::Skip) | None => 1,
        Some(Verdict::Fail | Verdict::Error) => 0,
    }
}

fn change(left: Option<Verdict>, right: Option<Verdict>) -> Change {
    match weight(right).cmp(&weight(left)) {
        std::cmp::Ordering::Less => Change::Worse,
        std::cmp::Ordering::Greater => Change::Better,
        std::cmp::Ordering::Equal => Change::Other,
    }
}

fn evidence_of(left: &TrialRecord, right: &TrialRecord) -> Vec<EvidenceChange> {
    let fields: BTreeSet<&String> = left.evidence.keys().chain(right.evidence.keys()).collect();
    let absent = Value::Null;
    let of =
        |trial: &TrialRecord, field: &str| trial.evidence.get(field).unwrap_or(&absent).clone();
    fields
        .into_iter()
        .map(|field| (field, of(left, field), of(right, field)))
        .filter(|(_, l, r)| l != r)
        .map(|(field, l, r)| EvidenceChange {
            name: left.name.clone(),
            field: field.clone(),
            left: l,
            right: r,
        })
        .collect()
}

fn facts(left: &GateRun, right: &GateRun) -> Vec<Fact> {
    let (l, r) = (&left.run, &right.run);
    let mut facts = provenance((&l.build, &l.machine), (&r.build, &r.machine));
    let options = |o: &RunOptions| {
        let set: Vec<String> = o.set.iter().map(|(k, v)| format!("{k}={v}")).collect();
        [
            ("selection", o.selection.join(" ")),
            ("--long", o.long.to_string()),
            ("--set", set.join(" ")),
            ("--partition", o.partition.clone().unwrap_or_else(|| "none".to_owned())),
        ]
    };
    for ((name, left), (_, right)) in options(&l.options).into_iter().zip(options(&r.options)) {
        if left != right {
            facts.push(Fact { name: name.to_owned(), left, right });
        }
    }
    for gate in &l.gates {
        let Some(other) = r.gates.iter().find(|g| g.gate == gate.gate) else { continue };
        if gate.spec_digest != other.spec_digest {
            facts.push(Fact {
                name: format!("file of gate {}", gate.gate),
                left: gate.spec_digest.clone(),
                right: other.spec_digest.clone(),
            });
        }
    }
    facts
}
