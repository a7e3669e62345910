//! Tokens to printers, as they come.

use super::interrupt;
use super::printer::Printer;
use super::report::Timing;
use crate::cli::Failure;
use crate::engine::SequenceError;
use crate::generation::{Choice, GenerateError, Receiver, Stop};
use crate::units::Exit;
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

/// The printers of all requests and when their tokens came.
pub(super) struct Streams<'a> {
    printers: Vec<Printer<'a>>,
    start: Instant,
    /// First and last token of each request.
    times: Vec<Option<(Instant, Instant)>>,
    failure: Option<Failure>,
}

/// What all requests gave.
pub(super) struct Finished {
    /// One per request: its text, and how long it took.
    pub(super) texts: Vec<(String, Timing)>,
    /// From the first prompt to the last token.
    pub(super) time: Duration,
}

impl<'a> Streams<'a> {
    /// Starts the clock, and listens for Ctrl-C.
    ///
    /// # Errors
    /// As [`interrupt::listen`].
    pub(super) fn new(printers: Vec<Printer<'a>>) -> Result<Streams<'a>, Failure> {
        interrupt::listen()?;
        let times = vec![None; printers.len()];
        Ok(Streams { printers, start: Instant::now(), times, failure: None })
    }

    /// The texts, complete also where an error followed.
    ///
    /// # Errors
    /// stdout is closed or full.
    pub(super) fn finish(self) -> Result<Finished, Failure> {
        let time = self.start.elapsed();
        if let Some(failure) = self.failure {
            return Err(failure);
        }
        let timing = |times: Option<(Instant, Instant)>| match times {
            Some((first, last)) => Timing { first_token: first - self.start, decode: last - first },
            None => Timing { first_token: time, decode: Duration::ZERO },
        };
        let texts = self.printers.into_iter().zip(self.times);
        let texts = texts
            .map(|(printer, times)| printer.finish().map(|text| (text, timing(times))))
            .collect::<Result<_, _>>()?;
        Ok(Finished { texts, time })
    }
}

impl Receiver for Streams<'_> {
    fn token(&mut self, request: usize, choice: &Choice) -> ControlFlow<Stop> {
        let now = Instant::now();
        let times = self.times[request].get_or_insert((now, now));
        times.1 = now;
        match self.printers[request].token(choice.id) {
            Ok(flow) => flow,
            Err(failure) => {
                self.failure = Some(failure);
                ControlFlow::Break(Stop::Cancelled)
            }
        }
    }

    fn interrupted(&mut self) -> bool {
        self.failure.is_some() || interrupt::requested()
    }
}

pub(super) fn exit_of(error: &GenerateError) -> Exit {
    match error {
        // The last is a mistake in the checkpoint's files.
        GenerateError::EmptyPrompt
        | GenerateError::ContextTooSmall { .. }
        | GenerateError::NonFinite { .. } => Exit::Usage,
        GenerateError::Engine { source, .. } => match source {
            SequenceError::TokenOutOfRange { .. } | SequenceError::ContextFull { .. } => {
                Exit::Usage
            }
            _ => Exit::Internal,
        },
        GenerateError::Logits { .. } | GenerateError::WrongOutput { .. } => Exit::Internal,
    }
}
