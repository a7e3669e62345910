//! Why a checkpoint was refused.

use super::Rule;
use crate::units;
use std::fmt;
use std::path::{Path, PathBuf};

/// Where in a file a rule was broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Byte of the file, from 0 (headers).
    Byte(u64),
    /// Line and column (index files).
    Text(units::Position),
}

/// A refusal: file, position, tensor, rule, what was expected and what was found.
///
/// Nothing that was taken for a refused checkpoint outlives the error: maps are closed and memory
/// is freed before it is returned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckpointError {
    pub rule: Rule,
    pub file: PathBuf,
    pub position: Option<Place>,
    pub tensor: Option<String>,
    /// What the rule asks of this file or tensor in particular, where that says more than the
    /// rule's own sentence.
    pub expected: Option<String>,
    pub found: String,
    /// What the user can do, where there is something to say.
    pub help: Option<String>,
}

impl CheckpointError {
    /// A refusal of `file` under `rule`.
    pub(super) fn new(
        file: impl Into<PathBuf>,
        rule: Rule,
        found: impl Into<String>,
    ) -> CheckpointError {
        CheckpointError {
            rule,
            file: file.into(),
            position: None,
            tensor: None,
            expected: None,
            found: found.into(),
            help: None,
        }
    }

    pub(super) fn at(mut self, position: Place) -> CheckpointError {
        self.position = Some(position);
        self
    }

    pub(super) fn tensor(mut self, name: impl Into<String>) -> CheckpointError {
        self.tensor = Some(name.into());
        self
    }

    pub(super) fn expected(mut self, expected: impl Into<String>) -> CheckpointError {
        self.expected = Some(expected.into());
        self
    }

    pub(super) fn help(mut self, help: impl Into<String>) -> CheckpointError {
        self.help = Some(help.into());
        self
    }

    /// Whether reading failed, as opposed to the content being refused.
    pub fn is_io(&self) -> bool {
        self.rule == Rule::Readable
    }

    /// The message with `folder` removed from the start of the file's path, for snapshots that do
    /// not depend on where a checkpoint lies.
    pub fn relative_to(&self, folder: &Path) -> String {
        let file = self.file.strip_prefix(folder).unwrap_or(&self.file).to_owned();
        CheckpointError { file, ..self.clone() }.to_string()
    }
}

/// `text` quoted and escaped, cut to a length that fits a message.
pub(super) fn quoted(text: &str) -> String {
    const LIMIT: usize = 120;
    match text.char_indices().nth(LIMIT) {
        None => format!("{text:?}"),
        Some((cut, _)) => format!("{:?}… ({} bytes)", &text[..cut], text.len()),
    }
}

impl fmt::Display for CheckpointError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.file.display())?;
        match self.position {
            Some(Place::Byte(byte)) => write!(f, ": byte {byte}")?,
            Some(Place::Text(position)) => write!(f, ":{position}")?,
            None => {}
        }
        if let Some(tensor) = &self.tensor {
            write!(f, ": tensor {}", quoted(tensor))?;
        }
        write!(f, ": {} [{}]", self.rule.statement(), self.rule.name())?;
        if let Some(expected) = &self.expected {
            write!(f, ": expected {expected}")?;
        }
        write!(f, "{} found {}", if self.expected.is_some() { "," } else { ":" }, self.found)?;
        match &self.help {
            Some(help) => write!(f, "; {help}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for CheckpointError {}
