//! The recorded facts of a run and of a trial.

use crate::backend::DeviceKind;
use crate::harness::kind::{Cell, Outcome, Part, Verdict};
use crate::harness::spec::Track;
use crate::units::{BUILD, Machine, build_digest};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Version of the record format. Older versions stay readable; newer ones are refused.
pub const SCHEMA_VERSION: u32 = 1;

/// What kind of run a folder holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RunKind {
    GateRun,
}

/// `run.json`: everything about a run that is not one trial.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RunRecord {
    pub schema_version: u32,
    pub kind: RunKind,
    pub run_id: String,
    /// The command line, as typed.
    pub command: Vec<String>,
    /// RFC 3339, UTC.
    pub started: String,
    /// RFC 3339, UTC; absent until the run is complete.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finished: Option<String>,
    /// Time the trials took together, pauses between resumed parts left out.
    #[serde(default)]
    pub elapsed_ms: u64,
    pub build: BuildRecord,
    pub machine: MachineRecord,
    pub devices: Vec<DeviceRecord>,
    pub options: RunOptions,
    /// The gates that took part, in the order of their names.
    pub gates: Vec<GateRecord>,
    /// Policies that a device does not have; each listed once.
    pub not_applicable: Vec<NotApplicable>,
    /// Trials planned, skipped ones included.
    pub planned_trials: u64,
    /// Names of planned trials that had no record when this file was written: all of them while the
    /// run goes on, none once it is complete, those that were lost in a merged run. A name that
    /// `trials.jsonl` has is not missing any more.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pending: Vec<String>,
    /// What this run could not establish, one sentence each (a device that is absent, …).
    pub unestablished: Vec<String>,
    /// Digest of the last line of `trials.jsonl`; absent until the run is complete.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_line: Option<String>,
    /// The runs that `report merge` made this one of; empty for a run that executed its trials.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub merged: Vec<MergedRun>,
    /// Parts of a partition that were not among the merged runs: their trials have no result.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub missing_parts: Vec<String>,
}

/// A run that became part of a merged one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct MergedRun {
    pub run_id: String,
    /// RFC 3339, UTC.
    pub started: String,
    /// RFC 3339, UTC; absent where the run was stopped before its end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finished: Option<String>,
    pub elapsed_ms: u64,
    pub machine: MachineRecord,
    pub devices: Vec<DeviceRecord>,
    /// `--partition`, as typed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partition: Option<String>,
    pub planned_trials: u64,
    /// Trials with a record.
    pub recorded_trials: u64,
    /// Digest of the last line of its `trials.jsonl`.
    pub last_line: String,
}

/// What decides the trials of a run beside the gate files.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RunOptions {
    /// Names, globs, `tag:` and paths, as typed.
    pub selection: Vec<String>,
    /// `--long`.
    pub long: bool,
    /// `--set KEY=VALUE`.
    #[serde(default)]
    pub set: std::collections::BTreeMap<String, String>,
    /// `--partition`, as typed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partition: Option<String>,
    /// `--shuffle`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shuffle: Option<u64>,
}

/// The binary that executed the trials.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct BuildRecord {
    /// Digest over source, compiler and flags; equal for equal builds.
    pub digest: String,
    pub version: String,
    pub git_revision: String,
    /// `null` where there is no revision.
    pub git_dirty: Option<bool>,
    pub compiler: String,
    pub target: String,
    pub profile: String,
    pub features: String,
}

impl BuildRecord {
    /// The build of this process.
    pub fn current() -> BuildRecord {
        BuildRecord {
            digest: build_digest().to_string(),
            version: BUILD.crate_version.into(),
            git_revision: BUILD.git_revision.into(),
            git_dirty: BUILD.git_dirty,
            compiler: BUILD.compiler.into(),
            target: BUILD.target.into(),
            profile: BUILD.profile.into(),
            features: BUILD.features.into(),
        }
    }
}

/// The machine the trials ran on; `null` is a fact that could not be read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct MachineRecord {
    pub cpu: Option<String>,
    pub architecture: String,
    pub instruction_sets: Vec<String>,
    pub usable_processors: u64,
    pub memory_bytes: Option<u64>,
    pub system: Option<String>,
    pub kernel: Option<String>,
    pub host: Option<String>,
}

impl MachineRecord {
    /// The machine of this process.
    pub fn current() -> MachineRecord {
        let Machine { cpu, memory, system } = Machine::probe();
        MachineRecord {
            cpu: cpu.model,
            architecture: cpu.architecture.into(),
            instruction_sets: cpu.instruction_sets.iter().map(|s| (*s).to_owned()).collect(),
            usable_processors: cpu.usable_processors as u64,
            memory_bytes: memory.total_bytes,
            system: system.name,
            kernel: system.kernel,
            host: system.host,
        }
    }

    /// Whether results of both may stand in one run: the same processor model and instruction
    /// sets. Names, memory and kernel may differ.
    pub fn is_like(&self, other: &MachineRecord) -> bool {
        (&self.cpu, &self.architecture, &self.instruction_sets)
            == (&other.cpu, &other.architecture, &other.instruction_sets)
    }
}

/// A kind of device and whether this machine has it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DeviceRecord {
    pub device: DeviceKind,
    pub count: u64,
    /// Its name, or why there is none.
    pub detail: String,
}

/// A gate of the run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct GateRecord {
    pub gate: String,
    pub claim: String,
    pub track: Track,
    pub kind: String,
    pub tags: Vec<String>,
    /// Path of the file, relative to the project folder where it lies inside.
    pub path: String,
    /// SHA-256 of the file and of what `--set` changed in it.
    pub spec_digest: String,
    /// Trials planned on this machine, skipped ones included, before `--partition`.
    pub trials: u64,
    /// What a run without `--long` left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub part: Option<Part>,
}

/// A policy that a device does not have: no trial, listed once.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub struct NotApplicable {
    pub gate: String,
    pub device: DeviceKind,
    pub policy: String,
    pub reason: String,
}

/// One line of `trials.jsonl`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TrialRecord {
    /// Stable name: `gate/device/policy/case/axis=value,…`.
    pub name: String,
    pub gate: String,
    pub device: DeviceKind,
    /// `null` where the claim has no numerical policy.
    pub policy: Option<crate::backend::Policy>,
    pub case: Option<String>,
    /// Matrix axes in declared order.
    pub axes: Map<String, Value>,
    pub verdict: Verdict,
    /// One line; for a failure what was expected and what was found.
    pub message: String,
    /// Numbers, counts and digests that support the verdict. Non-finite numbers are strings.
    pub evidence: Map<String, Value>,
    /// RFC 3339, UTC.
    pub started: String,
    pub duration_ms: u64,
    /// 1, or more after `--resume` retried an `error`.
    pub attempt: u32,
    pub spec_digest: String,
    /// The build of the process that executed it.
    pub build_digest: String,
    /// In a merged run: the id of the run that executed it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from_run: Option<String>,
}

impl TrialRecord {
    /// A record of an outcome; time and attempt are filled in by the runner.
    pub fn new(
        name: &str,
        gate: &str,
        cell: &Cell,
        outcome: Outcome,
        spec_digest: &str,
    ) -> TrialRecord {
        TrialRecord {
            name: name.to_owned(),
            gate: gate.to_owned(),
            device: cell.device,
            policy: cell.policy,
            case: cell.case.clone(),
            axes: cell.axes.iter().map(|(k, v)| (k.clone(), Value::from(v.as_str()))).collect(),
            verdict: outcome.verdict,
            message: outcome.message,
            evidence: outcome.evidence,
            started: crate::units::utc_now(),
            duration_ms: 0,
            attempt: 1,
            spec_digest: spec_digest.to_owned(),
            build_digest: build_digest().to_string(),
            from_run: None,
        }
    }

    /// The axes as text, in declared order.
    pub fn axes(&self) -> impl Iterator<Item = (&str, &str)> {
        self.axes.iter().map(|(k, v)| (k.as_str(), v.as_str().unwrap_or_default()))
    }
}

/// `20310509t140359z-1f3a`: sorts by time, is a portable file name, differs between runs that
/// start in the same second.
pub fn run_id(started: &str) -> String {
    let stamp: String = started.chars().filter(char::is_ascii_alphanumeric).collect();
    let mut bytes = [0; 2];
    if getrandom::fill(&mut bytes).is_err() {
        bytes = (std::process::id() as u16).to_be_bytes();
    }
    format!("{}-{:02x}{:02x}", stamp.to_lowercase(), bytes[0], bytes[1])
}

/// What a run cannot establish, one sentence for each device that is absent and has something to
/// test: `listed` counts the trials of a device, skipped ones included.
pub fn unestablished(
    devices: &[DeviceRecord],
    listed: impl Fn(DeviceKind) -> usize,
    not_applicable: &[NotApplicable],
) -> Vec<String> {
    let counted = |n: usize, noun: &str| match n {
        1 => format!("1 {noun}"),
        n => format!("{n} {noun}s"),
    };
    let mut sentences = Vec::new();
    for device in devices.iter().filter(|d| d.count == 0) {
        let gates: std::collections::BTreeSet<&str> = not_applicable
            .iter()
            .filter(|n| n.device == device.device)
            .map(|n| n.gate.as_str())
            .collect();
        let what = match (listed(device.device), gates.len()) {
            (0, 0) => continue,
            (0, n) => counted(n, "gate"),
            (n, _) => counted(n, "trial"),
        };
        let name = if device.device == DeviceKind::Cuda { "CUDA" } else { "the CPU" };
        sentences.push(format!("nothing on {name} ({what}): {}", device.detail));
    }
    sentences
}
