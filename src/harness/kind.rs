//! The contract of a gate kind: one module that implements [`GateKind`] and [`KindSpec`].

use super::{Cache, Select};
use crate::backend::{DeviceKind, Policy};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What a trial came to.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    Hash,
    PartialOrd,
    Ord,
    Serialize,
    Deserialize,
    schemars::JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    Pass,
    Fail,
    /// The trial could not be carried out (worker died, time-out, panic).
    Error,
    /// Not run, for the reason in the message; counted, never shown as passed.
    Skip,
    /// An `unverified` cell: finite, reported, counted apart, never a pass.
    Measured,
}

impl Verdict {
    /// Every verdict, the gravest first.
    pub const ALL: [Verdict; 5] =
        [Verdict::Error, Verdict::Fail, Verdict::Skip, Verdict::Measured, Verdict::Pass];
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Verdict::Pass => "pass",
            Verdict::Fail => "fail",
            Verdict::Error => "error",
            Verdict::Skip => "skip",
            Verdict::Measured => "measured",
        })
    }
}

/// The result of one trial.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    pub verdict: Verdict,
    /// One line for people; for a failure: what was expected and what was found.
    pub message: String,
    /// Numbers, counts and digests that support the verdict. Non-finite numbers are spelt as
    /// strings (`"nan"`, `"inf"`, `"-inf"`), so that they survive JSON; see [`Outcome::number`].
    pub evidence: serde_json::Map<String, serde_json::Value>,
}

impl Outcome {
    /// A pass.
    pub fn pass(message: impl Into<String>) -> Outcome {
        Outcome::new(Verdict::Pass, message)
    }

    /// A failure.
    pub fn fail(message: impl Into<String>) -> Outcome {
        Outcome::new(Verdict::Fail, message)
    }

    /// The trial could not be carried out, and that says nothing about the claim.
    pub fn error(message: impl Into<String>) -> Outcome {
        Outcome::new(Verdict::Error, message)
    }

    /// An outcome without evidence yet.
    pub fn new(verdict: Verdict, message: impl Into<String>) -> Outcome {
        Outcome { verdict, message: message.into(), evidence: serde_json::Map::new() }
    }

    /// Adds a piece of evidence.
    pub fn with(mut self, key: &str, value: impl Into<serde_json::Value>) -> Outcome {
        self.evidence.insert(key.to_owned(), value.into());
        self
    }

    /// Adds a measured number; a non-finite one is kept as its name instead of JSON's `null`.
    pub fn number(self, key: &str, value: f64) -> Outcome {
        let json = match value {
            v if v.is_finite() => v.into(),
            v if v.is_nan() => "nan".into(),
            v if v > 0.0 => "inf".into(),
            _ => serde_json::Value::from("-inf"),
        };
        self.with(key, json)
    }
}

/// One row of a gate's matrix, before device and policy are crossed in.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Case {
    /// The execution case or the item the claim is about, e.g. `decode`; part of the trial name.
    pub case: Option<String>,
    /// Matrix axes in their declared order, e.g. `("heads", "24x4")`; see
    /// [`Matrix`](super::Matrix).
    pub axes: Vec<(String, String)>,
}

impl Case {
    /// A case without axes.
    pub fn named(case: impl Into<String>) -> Case {
        Case { case: Some(case.into()), axes: Vec::new() }
    }
}

/// One cell of a gate's matrix; device and policy are always axes.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Cell {
    pub device: DeviceKind,
    /// `None` where the claim has no numerical policy (parsers, tokeniser, …).
    pub policy: Option<Policy>,
    /// The remaining path of the trial name, e.g. `decode`.
    pub case: Option<String>,
    /// Matrix axes in declared order, e.g. `("heads", "24x4")`.
    pub axes: Vec<(String, String)>,
}

impl Cell {
    /// The value of an axis; `device`, `policy` and `case` are axes too.
    pub fn axis(&self, name: &str) -> Option<String> {
        match name {
            "device" => Some(self.device.to_string()),
            "policy" => self.policy.map(|p| p.to_string()),
            "case" => self.case.clone(),
            _ => self.axes.iter().find(|(n, _)| n == name).map(|(_, v)| v.clone()),
        }
    }

    /// An axis read as a value: `cell.read::<usize>("kv_tokens")?`.
    ///
    /// # Errors
    /// A sentence that names the axis and its text.
    pub fn read<T: std::str::FromStr>(&self, name: &str) -> Result<T, String> {
        let text = self.axis(name).ok_or_else(|| format!("the cell has no axis `{name}`"))?;
        text.parse().map_err(|_| format!("axis `{name}` cannot be read from `{text}`"))
    }

    /// An axis of joined numbers (`24x4`) read as a list.
    ///
    /// # Errors
    /// As [`Cell::read`].
    pub fn read_list<T: std::str::FromStr>(&self, name: &str) -> Result<Vec<T>, String> {
        let text = self.axis(name).ok_or_else(|| format!("the cell has no axis `{name}`"))?;
        text.split('x')
            .map(|part| part.parse().map_err(|_| format!("axis `{name}`: `{part}` in `{text}`")))
            .collect()
    }
}

/// What is known while the cases of one device and policy are planned.
#[derive(Clone, Debug)]
pub struct PlanScope {
    pub device: DeviceKind,
    /// `None` for kinds with [`PolicyUse::None`].
    pub policy: Option<Policy>,
    /// `--long`: everything instead of the fixed small part.
    pub long: bool,
    /// The project folder (holds `gates/`, `descriptors/`, `tests/fixtures/`).
    pub root: PathBuf,
    /// The folder of the spec file; relative paths in the file start here.
    pub base: PathBuf,
}

impl PlanScope {
    /// A path of the spec file, made absolute.
    pub fn path(&self, relative: impl AsRef<Path>) -> PathBuf {
        self.base.join(relative)
    }
}

/// What a running trial may use.
#[derive(Clone, Debug)]
pub struct RunContext {
    pub long: bool,
    pub root: PathBuf,
    pub base: PathBuf,
    /// An empty folder for this trial, removed afterwards.
    pub scratch: PathBuf,
    /// Threads this trial may use.
    pub threads: usize,
    /// What earlier trials of this worker process loaded (models, references).
    pub cache: Arc<Cache>,
}

impl RunContext {
    /// A path of the spec file, made absolute.
    pub fn path(&self, relative: impl AsRef<Path>) -> PathBuf {
        self.base.join(relative)
    }
}

/// Something in a spec that cannot be planned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The top-level key of the file it is about, for the location in the message.
    pub key: Option<&'static str>,
    pub message: String,
}

impl Fault {
    /// A fault in the value of a top-level key.
    pub fn at(key: &'static str, message: impl Into<String>) -> Fault {
        Fault { key: Some(key), message: message.into() }
    }
}

impl From<String> for Fault {
    fn from(message: String) -> Fault {
        Fault { key: None, message }
    }
}

/// How much of a `long` gate a short run covers: `24 of 200 schedules`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Part {
    pub run: u64,
    pub of: u64,
    /// Plural noun of what is counted.
    pub what: String,
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {} {}", self.run, self.of, self.what)
    }
}

/// Which devices a kind's trials are listed for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceUse {
    /// The claim is about host code (parsers, manifests, …): `cpu` alone.
    Host,
    /// Every device that `requires` allows.
    Any,
}

/// Whether a kind's trials have a numerical policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PolicyUse {
    /// No; the key `policy` is refused.
    None,
    /// Yes: `policy` lists them; without it every policy the device has.
    Listed,
}

/// A kind of gate: how its matrix expands and how one cell is decided.
pub trait GateKind: fmt::Debug + Send + Sync {
    /// The cases of the matrix for the device and policy of `scope`, in a stable order.
    ///
    /// # Errors
    /// What in the file cannot be expanded. No case at all is an error of the caller.
    fn cases(&self, scope: &PlanScope) -> Result<Vec<Case>, Fault>;

    /// Decides one cell. Panics are caught by the runner and become [`Verdict::Error`].
    fn run(&self, cell: &Cell, context: &RunContext) -> Outcome;

    /// Trials with the same group run in the same worker process, one after the other, so that
    /// what they cache is loaded once. Typically the path of a model.
    fn group(&self, _cell: &Cell) -> Option<String> {
        None
    }

    /// Why the claim is not one that `policy` makes on `device`, if it does not: listed once as not
    /// applicable, never run.
    fn not_applicable(&self, _device: DeviceKind, _policy: Policy) -> Option<String> {
        None
    }

    /// What a run without `--long` leaves out, if anything.
    fn part(&self, _scope: &PlanScope) -> Option<Part> {
        None
    }

    /// The selectors of the expectations in the file; the planner checks that every cell matches
    /// exactly one. Empty where the kind knows what to expect of every cell.
    fn expectations(&self) -> Vec<&Select> {
        Vec::new()
    }
}

/// A [`GateKind`] as it is read from a file: the kind's own keys, typed.
///
/// Implemented by a plain struct with derived `Deserialize` and `JsonSchema`, both with
/// `#[serde(deny_unknown_fields)]`. The keys that every gate has (`gate`, `claim`, `track`, `tags`,
/// `requires`, `kind`, `policy`, `exclude`, `include`, `timeout_ms`) are read by the harness and
/// must not be fields.
pub trait KindSpec:
    GateKind + serde::de::DeserializeOwned + schemars::JsonSchema + 'static
{
    /// The value of `kind:`.
    const NAME: &'static str;
    const DEVICE: DeviceUse;
    const POLICY: PolicyUse;
}
