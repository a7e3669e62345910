//! Why a conversation could not be rendered.

use crate::units::Position;
use std::path::PathBuf;

/// A template or a conversation was refused.
#[derive(Debug, thiserror::Error)]
pub enum ChatError {
    #[error("cannot read {}: {source}", path.display())]
    Read { path: PathBuf, source: std::io::Error },
    #[error("{} is {found_bytes} bytes long; expected at most {limit_bytes}", path.display())]
    TooLarge { path: PathBuf, found_bytes: u64, limit_bytes: u64 },
    #[error("{}:{position}: {problem}", path.display())]
    File { path: PathBuf, position: Position, problem: String },
    #[error(
        "{} has no chat template; looked for chat_template.jinja, chat_template.json and \
         `chat_template` in tokenizer_config.json (help: give the prompt as text, -p, with the \
         control tokens that the model expects and --parse-control-tokens)",
        folder.display()
    )]
    NoTemplate { folder: PathBuf },
    /// The template uses something that is not implemented, or is no Jinja.
    #[error("{place}:{line}: the chat template is not supported: {problem}")]
    Unsupported { place: String, line: usize, problem: String },
    /// The template called `raise_exception`.
    #[error("{place}:{line}: the chat template refuses the messages: {message}")]
    Refused { place: String, line: usize, message: String },
    /// The template failed on these messages.
    #[error("{place}:{line}: the chat template fails on these messages: {problem}")]
    Failed { place: String, line: usize, problem: String },
    #[error(
        "the messages use every character that could mark them; leave out private use U+10FF00 to U+10FFFD"
    )]
    NoMark,
}

impl ChatError {
    /// Whether reading failed, as opposed to content being refused.
    pub fn is_io(&self) -> bool {
        matches!(self, ChatError::Read { .. })
    }
}
