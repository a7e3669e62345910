//! Why a model description was refused.

use crate::units::{JsonError, Position};
use std::fmt;
use std::path::{Path, PathBuf};

/// A `config.json`, descriptor or tensor index was not accepted.
#[derive(Debug, thiserror::Error)]
pub enum DescriptorError {
    /// A file could not be read.
    #[error("{}: {source}", path.display())]
    Io { path: PathBuf, source: std::io::Error },
    /// A file says something that is wrong, contradictory or not implemented.
    #[error(transparent)]
    Refused(#[from] Box<Refusal>),
}

impl DescriptorError {
    pub(super) fn io(path: &Path, source: std::io::Error) -> DescriptorError {
        DescriptorError::Io { path: path.to_owned(), source }
    }
}

/// One refusal: where, which key, what was expected and found, and what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The file as the user named it.
    pub file: String,
    pub position: Option<Position>,
    /// The key with its path (`text_config.rope_parameters.rope_theta`), where one is at fault.
    pub key: Option<String>,
    pub problem: String,
    pub help: Option<String>,
}

impl Refusal {
    /// A refusal of a whole file.
    pub fn of_file(file: &str, problem: impl Into<String>) -> Box<Refusal> {
        Box::new(Refusal {
            file: file.to_owned(),
            position: None,
            key: None,
            problem: problem.into(),
            help: None,
        })
    }

    /// A syntax error.
    pub fn of_syntax(file: &str, error: JsonError) -> Box<Refusal> {
        let mut refusal = Refusal::of_file(file, error.message);
        refusal.position = Some(error.position);
        refusal
    }

    /// Adds what the user can do about it.
    pub fn help(mut self: Box<Refusal>, help: impl Into<String>) -> Box<Refusal> {
        self.help = Some(help.into());
        self
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.file)?;
        if let Some(position) = self.position {
            write!(f, ":{position}")?;
        }
        f.write_str(": ")?;
        if let Some(key) = &self.key {
            // Keys come from files: one of a megabyte is no message.
            const KEY_CHARS: usize = 100;
            match key.char_indices().nth(KEY_CHARS) {
                Some((end, _)) => write!(f, "`{}…`: ", &key[..end])?,
                None => write!(f, "`{key}`: ")?,
            }
        }
        f.write_str(&self.problem)?;
        match &self.help {
            Some(help) => write!(f, " (help: {help})"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for Refusal {}
