//! Why a run could not start or had to stop.

use crate::harness::records::RecordError;
use std::path::PathBuf;

/// A run could not start or had to stop. Finished trials are recorded.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    #[error(transparent)]
    Records(#[from] RecordError),
    #[error("cannot resume {}: {reason}", run.display())]
    Resume { run: PathBuf, reason: String },
    #[error("cannot make the scratch folder {}: {source}", path.display())]
    Scratch { path: PathBuf, source: std::io::Error },
}
