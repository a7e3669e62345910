//! Why a capture could not be made or read.

use crate::engine::SequenceError;
use crate::generation::TokenizerError;
use crate::units::Position;
use crate::weights::CheckpointError;
use std::path::PathBuf;

/// A capture could not be made or read.
#[derive(Debug, thiserror::Error)]
pub enum CaptureError {
    #[error("{}: {source}", path.display())]
    Io { path: PathBuf, source: std::io::Error },
    #[error("{} is {found}, and only captures are written over; choose another name", path.display())]
    Occupied { path: PathBuf, found: &'static str },
    #[error("interrupted: no capture was written")]
    Interrupted,
    #[error("{}:{position}: {message}", path.display())]
    Prompts { path: PathBuf, position: Position, message: String },
    #[error("{}: prompt `{prompt}` is text: {source}", path.display())]
    Text { path: PathBuf, prompt: String, source: TokenizerError },
    #[error("{}: prompt `{prompt}` is text, and the model comes without a tokenizer.json; give token ids", path.display())]
    NoTokenizer { path: PathBuf, prompt: String },
    #[error("prompt `{prompt}`: {source}")]
    Sequence { prompt: String, source: SequenceError },
    #[error("prompt `{prompt}`: a logit at position {position} is not finite")]
    NonFinite { prompt: String, position: usize },
    #[error("no activation is named `{name}`{}", nearest.as_ref().map(|n| format!("; the nearest is `{n}`")).unwrap_or_default())]
    UnknownTap { name: String, nearest: Option<String> },
    #[error(transparent)]
    Unreadable(#[from] CheckpointError),
    #[error("{}: metadata `{key}`: {message}", path.display())]
    Metadata { path: PathBuf, key: &'static str, message: String },
}

impl CaptureError {
    /// Whether reading or writing failed, as opposed to what was read.
    pub fn is_io(&self) -> bool {
        match self {
            CaptureError::Io { .. } => true,
            CaptureError::Unreadable(e) => e.is_io(),
            _ => false,
        }
    }
}
