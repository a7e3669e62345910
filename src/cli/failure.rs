//! Errors of the command line: a message and the exit code it ends the process with.

use super::Console;
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
        let closed_pipe = self.error.downcast_ref::<std::io::Error>().is_some_and(|e| {
            // The reader of our output went away (`assay … | head`): nothing to say, no failure.
            e.kind() == std::io::ErrorKind::BrokenPipe
        });
        if closed_pipe {
            return Exit::Success;
        }
        console.error(&format!("{:#}", self.error));
        self.exit
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Failure {
        Failure { exit: Exit::Io, error: error.into() }
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
