//! Why a tokeniser or a text was refused.

use std::path::PathBuf;

/// A tokeniser could not be opened, or cannot express what it was asked to.
#[derive(Debug, thiserror::Error)]
pub enum TokenizerError {
    #[error("cannot read {}: {source}", path.display())]
    Read { path: PathBuf, source: std::io::Error },
    #[error("{} is {found_bytes} bytes long; a tokeniser file has at most {limit_bytes}", path.display())]
    TooLarge { path: PathBuf, found_bytes: u64, limit_bytes: u64 },
    #[error("{} is not a tokeniser: {message}", path.display())]
    Malformed { path: PathBuf, message: String },
    #[error("{}: decoder `{found}` is not supported; supported are ByteLevel, and ByteFallback with Replace, Fuse and Strip", path.display())]
    Decoder { path: PathBuf, found: String },
    #[error("the text cannot be tokenised: {0}")]
    Encode(String),
    #[error(
        "the text would become control token {id} (`{token}`) although it is to be read as text"
    )]
    ControlTokenInText { id: u32, token: String },
    #[error("token id {id} is unknown to the tokeniser, which has ids below {ids}")]
    UnknownId { id: u32, ids: usize },
}
