//! Why a model or a request was refused.

use crate::backend::{NonFinite, PolicyError};
use crate::placement::PlacementError;

/// An engine could not be created.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    #[error(transparent)]
    Policy(#[from] PolicyError),
    #[error(transparent)]
    Placement(#[from] PlacementError),
    #[error("weight `{role}`{} is missing", layer.map(|l| format!(" of layer {l}")).unwrap_or_default())]
    MissingWeight { role: String, layer: Option<usize> },
    #[error("weight `{role}`{} is {found:?}, the descriptor says {expected:?}",
        layer.map(|l| format!(" of layer {l}")).unwrap_or_default())]
    WeightShape { role: String, layer: Option<usize>, expected: [usize; 2], found: [usize; 2] },
    #[error("this engine cannot run the model: {0}")]
    Unsupported(String),
}

/// A request on a sequence was refused or failed. Unless said otherwise nothing changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SequenceError {
    #[error("an entry needs at least one token")]
    NoTokens,
    #[error("token id {id} is outside the vocabulary of {vocab}")]
    TokenOutOfRange { id: u32, vocab: usize },
    #[error("{wants} row requests for {rows} tokens")]
    WantCount { wants: usize, rows: usize },
    #[error("position {end_tokens} would exceed the context of {limit_tokens} tokens")]
    ContextFull { end_tokens: usize, limit_tokens: usize },
    #[error("a step takes at most {limit_rows} rows, this entry would make it {rows}")]
    BatchFull { rows: usize, limit_rows: usize },
    #[error("the sequence belongs to another engine")]
    ForeignEngine,
    #[error("the sequence is invalid after a failed forward; reset it")]
    Invalid,
    #[error("cannot truncate to {target_tokens} tokens: {reason}")]
    Truncate { target_tokens: usize, reason: String },
    #[error("the checkpoint is not valid here: {reason}")]
    Checkpoint { reason: String },
    #[error("memory limit of {limit_bytes} bytes reached: {needed_bytes} more are needed")]
    OutOfMemory { needed_bytes: u64, limit_bytes: u64 },
    #[error("at position {position} {logits}; reset the sequence")]
    NonFinite { position: usize, logits: NonFinite },
    #[error("the device failed in region `{region}`: {message}")]
    DeviceFault { region: String, message: String },
}
