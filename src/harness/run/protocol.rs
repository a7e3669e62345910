//! What runner and worker say to each other: one JSON value a line, over stdin and stdout.

use crate::harness::kind::{Cell, Outcome};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// The worker's first line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Hello {
    /// Digest of the build that will execute the trials.
    pub(super) build_digest: String,
}

/// One trial to run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Request {
    pub(super) path: PathBuf,
    pub(super) set: BTreeMap<String, String>,
    /// The file must still have this digest.
    pub(super) spec_digest: String,
    pub(super) cell: Cell,
    pub(super) long: bool,
    pub(super) root: PathBuf,
    pub(super) scratch: PathBuf,
    pub(super) threads: usize,
}

/// What came of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Reply {
    pub(super) outcome: Outcome,
    /// The process is not to be trusted with another trial.
    pub(super) spent: bool,
}
