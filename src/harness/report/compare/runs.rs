//! The comparison of two recorded runs of the same kind.

use super::super::ReportError;
use super::super::store::Record;
use super::{DecisionComparison, GateComparison};
use crate::engine::manifest::BlockName;
use crate::harness::records::{BuildRecord, MachineRecord};
use crate::units::Exit;
use serde::Serialize;
use std::path::Path;

/// One of the two runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Side {
    pub run_id: String,
    /// RFC 3339, UTC.
    pub started: String,
    /// In a word or two: how it ended.
    pub outcome: String,
}

/// A fact about how the runs were made that differs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Fact {
    pub name: String,
    pub left: String,
    pub right: String,
}

/// What was found.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Found {
    GateRuns(GateComparison),
    Decisions(Box<DecisionComparison>),
}

/// Two runs, aligned.
#[derive(Clone, Debug, Serialize)]
pub struct RunComparison {
    pub left: Side,
    pub right: Side,
    /// Facts about build, machine, options and files that differ.
    pub facts: Vec<Fact>,
    #[serde(flatten)]
    pub found: Found,
}

impl RunComparison {
    /// 0 if the right run is as good as the left one or better; 1 if a trial got worse, or the
    /// decision is another.
    pub fn exit(&self) -> Exit {
        let bad = match &self.found {
            Found::GateRuns(gates) => gates.worse() > 0,
            Found::Decisions(decisions) => decisions.left != decisions.right,
        };
        if bad { Exit::Fail } else { Exit::Success }
    }

    /// The outcome as a word: `same`, `better`, `worse` or `changed`.
    pub fn word(&self) -> &'static str {
        match &self.found {
            Found::GateRuns(gates) if gates.worse() > 0 => "worse",
            Found::GateRuns(gates) if gates.better() > 0 => "better",
            Found::Decisions(decisions) if decisions.left != decisions.right => "changed",
            _ => "same",
        }
    }
}

/// Compares the runs in two folders; each is a run folder or holds a `record.json`.
///
/// `declared` names the manifest blocks that are meant to differ between two decisions.
///
/// # Errors
/// A folder holds no record that this version reads, or one is a gate run and one a decision.
pub fn compare_runs(
    left: &Path,
    right: &Path,
    declared: &[BlockName],
) -> Result<RunComparison, ReportError> {
    match (Record::open(left)?, Record::open(right)?) {
        (Record::Gates(l), Record::Gates(r)) => Ok(super::gates::compare_gate_runs(&l, &r)),
        (Record::Decision(l), Record::Decision(r)) => {
            Ok(super::decisions::compare_decisions(&l, &r, declared))
        }
        (l, r) => {
            let kind = |record: &Record| match record {
                Record::Gates(_) => "a gate run",
                Record::Decision(_) => "a decision",
                Record::Survey(_) => "a survey of planted defects",
                Record::Errors(_) => "a campaign of error rates",
            };
            Err(ReportError::Content {
                path: right.to_owned(),
                message: format!(
                    "this is {}, and {} is {}; two gate runs or two decisions are compared",
                    kind(&r),
                    left.display(),
                    kind(&l)
                ),
            })
        }
    }
}

/// The facts of builds and machines that differ.
pub(super) fn provenance(
    (left, left_machine): (&BuildRecord, &MachineRecord),
    (right, right_machine): (&BuildRecord, &MachineRecord),
) -> Vec<Fact> {
    let build = |b: &BuildRecord| {
        let dirty = if b.git_dirty == Some(true) { ", modified" } else { "" };
        [
            ("revision", format!("{}{dirty}", b.git_revision)),
            ("version", b.version.clone()),
            ("compiler", b.compiler.clone()),
            ("profile", b.profile.clone()),
            ("features", b.features.clone()),
            ("target", b.target.clone()),
            ("build digest", b.digest.clone()),
        ]
    };
    let text = |v: &Option<String>| v.clone().unwrap_or_else(|| "unavailable".to_owned());
    let machine = |m: &MachineRecord| {
        [
            ("processor", text(&m.cpu)),
            ("instruction sets", m.instruction_sets.join(", ")),
            ("processors usable", m.usable_processors.to_string()),
            ("system", text(&m.system)),
            ("kernel", text(&m.kernel)),
            ("host", text(&m.host)),
        ]
    };
    let builds = build(left).into_iter().zip(build(right));
    let machines = machine(left_machine).into_iter().zip(machine(right_machine));
    builds
        .chain(machines)
        .filter(|((_, l), (_, r))| l != r)
        .map(|((name, left), (_, right))| Fact { name: name.to_owned(), left, right })
        .collect()
}
