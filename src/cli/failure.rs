//! Errors of the command line: a message and the exit code it ends the process with.

use super::Console;
use super::console::ReaderGone;
use crate::units::Exit;
use std::fmt;

/// Why a command ended early.
#[derive(Debug)]
pub(crate) struct Failure {
    exit: Exit,
    error: anyhow::Error,
}

impl Failure {
    /// A failure with this code and message.
    pub(crate) fn new(exit: Exit, message: impl fmt::Display) -> Failure {
        Failure { exit, error: anyhow::anyhow!("{message}") }
    }

    /// A mistake in arguments or in a file that the user wrote.
    pub(crate) fn usage(message: impl fmt::Display) -> Failure {
        Failure::new(Exit::Usage, message)
    }

    /// Prints the message with its causes and gives the exit code.
    pub(super) fn report(&self, console: &Console) -> Exit {
        let error = self.error.downcast_ref::<std::io::Error>().and_then(|e| e.get_ref());
        if error.is_some_and(|e| e.is::<ReaderGone>()) {
            // `assay generate … | head`: nothing to say, no failure.
            return Exit::Success;
        }
        console.error(&self.message());
        self.exit
    }

    /// The message and its causes, those left out that the message before them holds already.
    fn message(&self) -> String {
        let mut said: Vec<String> = Vec::new();
        for cause in self.error.chain() {
            let words = cause.to_string();
            if !said.last().is_some_and(|before| before.contains(&words)) {
                said.push(words);
            }
        }
        said.join(": ")
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Failure {
        Failure { exit: Exit::Io, error: error.into() }
    }
}

/// A write for a reader that may go away: without it the write is done. (A process that serves another one over a
/// pipe has then served it.)
///
/// # Errors
/// Every other failure.
pub(crate) fn unless_closed(written: std::io::Result<()>) -> std::io::Result<()> {
    match written {
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        other => other,
    }
}

/// Gives an error the exit code it ends the process with.
pub(crate) trait OrExit<T> {
    /// Turns the error into a [`Failure`] with this code.
    ///
    /// # Errors
    /// The failure.
    fn or_exit(self, exit: Exit) -> Result<T, Failure>;

    /// As [`OrExit::or_exit`], with a sentence in front of the error.
    ///
    /// # Errors
    /// The failure.
    fn or_exit_with(self, exit: Exit, context: impl FnOnce() -> String) -> Result<T, Failure>;
}

impl<T, E: Into<anyhow::Error>> OrExit<T> for Result<T, E> {
    fn or_exit(self, exit: Exit) -> Result<T, Failure> {
        self.map_err(|e| Failure { exit, error: e.into() })
    }

    fn or_exit_with(self, exit: Exit, context: impl FnOnce() -> String) -> Result<T, Failure> {
        self.map_err(|e| Failure { exit, error: e.into().context(context()) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("cannot read a.json: {source}")]
    struct Holds {
        source: std::io::Error,
    }

    #[derive(Debug, thiserror::Error)]
    #[error("the run is lost")]
    struct Lacks {
        source: Holds,
    }

    #[test]
    fn every_cause_is_said_once() {
        let missing = || std::io::Error::from_raw_os_error(2);
        let failed = |error: anyhow::Error| Failure { exit: Exit::Io, error }.message();
        let once = "cannot read a.json: No such file or directory (os error 2)";
        assert_eq!(failed(Holds { source: missing() }.into()), once);
        let lacks = Lacks { source: Holds { source: missing() } };
        assert_eq!(failed(lacks.into()), format!("the run is lost: {once}"));
        let context = anyhow::Error::from(missing()).context("cannot write b.json");
        assert_eq!(failed(context), "cannot write b.json: No such file or directory (os error 2)");
    }
}
