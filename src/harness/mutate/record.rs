//! The record of a survey.

use crate::harness::kind::Verdict;
use crate::harness::records::{BuildRecord, MachineRecord};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Version of the record format. Older versions stay readable.
pub const SURVEY_VERSION: u32 = 1;

/// What kind of record this is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SurveyKind {
    MutationSurvey,
}

/// Everything about a survey that is not one defect.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SurveyRecord {
    pub schema_version: u32,
    pub kind: SurveyKind,
    pub run_id: String,
    /// The command line, as typed.
    pub command: Vec<String>,
    /// RFC 3339, UTC.
    pub started: String,
    /// RFC 3339, UTC; absent until every selected switch was tried.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finished: Option<String>,
    /// The build with switches.
    pub build: BuildRecord,
    pub machine: MachineRecord,
    /// Gates and trials that passed with every switch off.
    pub gates: u64,
    pub baseline_trials: u64,
    pub baseline_ms: u64,
    /// Switches that this build has.
    pub switches: u64,
}

/// What became of one planted defect.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mutation {
    pub switch: String,
    /// The region it sits in, or the area.
    pub region: String,
    pub defect: String,
    /// `None`: the defect survived every gate.
    pub killed_by: Option<Kill>,
    /// Trials that ran until then.
    pub trials: u64,
    pub duration_ms: u64,
}

/// The first trial that noticed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Kill {
    pub trial: String,
    /// `fail`, or `error` where the defect made the trial panic.
    pub verdict: Verdict,
    pub message: String,
}

/// A survey: the content of its `record.json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Survey {
    pub run: SurveyRecord,
    pub mutations: Vec<Mutation>,
}

/// Defects of one region.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct RegionShare {
    pub planted: u64,
    pub killed: u64,
}

impl Survey {
    /// Defects killed.
    pub fn killed(&self) -> u64 {
        self.mutations.iter().filter(|m| m.killed_by.is_some()).count() as u64
    }

    /// Switches of the build that were not tried: others were asked for, or the survey was cut off.
    pub fn untried(&self) -> u64 {
        self.run.switches.saturating_sub(self.mutations.len() as u64)
    }

    /// Defects that no gate noticed.
    pub fn survivors(&self) -> impl Iterator<Item = &Mutation> {
        self.mutations.iter().filter(|m| m.killed_by.is_none())
    }

    /// Planted and killed by region or area.
    pub fn by_region(&self) -> BTreeMap<&str, RegionShare> {
        let mut shares: BTreeMap<&str, RegionShare> = BTreeMap::new();
        for mutation in &self.mutations {
            let share = shares.entry(&mutation.region).or_default();
            share.planted += 1;
            share.killed += u64::from(mutation.killed_by.is_some());
        }
        shares
    }
}
