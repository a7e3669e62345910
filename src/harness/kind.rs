//! The contract of a gate kind: one module that implements [`GateKind`].

use crate::backend::{DeviceKind, Policy};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// What a trial came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
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

/// The result of one trial.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    pub verdict: Verdict,
    /// One line for people; for a failure: what was expected and what was found.
    pub message: String,
    /// Numbers, counts and digests that support the verdict.
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

    /// An outcome without evidence yet.
    pub fn new(verdict: Verdict, message: impl Into<String>) -> Outcome {
        Outcome { verdict, message: message.into(), evidence: serde_json::Map::new() }
    }

    /// Adds a piece of evidence.
    pub fn with(mut self, key: &str, value: impl Into<serde_json::Value>) -> Outcome {
        self.evidence.insert(key.to_owned(), value.into());
        self
    }
}

/// One cell of a gate's matrix; device and policy are always axes.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Cell {
    pub device: DeviceKind,
    /// `None` where the claim has no numerical policy (parsers, sampler, …).
    pub policy: Option<Policy>,
    /// The remaining path of the trial name, e.g. `decode`.
    pub case: Option<String>,
    /// Matrix axes in file order, e.g. `("heads", "24x4")`.
    pub axes: Vec<(String, String)>,
}

/// What is known while trials are planned.
#[derive(Clone, Debug)]
pub struct PlanScope {
    /// Devices whose trials are listed (those not present are listed as skips).
    pub devices: Vec<DeviceKind>,
    /// `--long`: everything instead of the fixed small part.
    pub long: bool,
    /// The project folder (holds `gates/`, `descriptors/`, `tests/fixtures/`).
    pub root: PathBuf,
    /// The folder of the spec file; relative paths in the file start here.
    pub base: PathBuf,
}

/// What a running trial may use.
#[derive(Clone, Debug)]
pub struct RunContext {
    pub long: bool,
    pub root: PathBuf,
    pub base: PathBuf,
    /// An empty folder for this trial, removed afterwards.
    pub scratch: PathBuf,
}

/// A kind of gate: how its matrix expands and how one cell is decided.
///
/// An implementation holds the kind's own fields, typed; `deny_unknown_fields` and a JSON Schema
/// come from the derives.
pub trait GateKind: Send + Sync {
    /// The cells of the matrix, in a stable order. An empty list is an error of the caller.
    ///
    /// # Errors
    /// A sentence about what in the file cannot be expanded.
    fn cells(&self, scope: &PlanScope) -> Result<Vec<Cell>, String>;

    /// Decides one cell. Panics are caught by the runner and become [`Verdict::Error`].
    fn run(&self, cell: &Cell, context: &RunContext) -> Outcome;
}
