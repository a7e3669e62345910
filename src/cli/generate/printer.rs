//! Text on stdout as it is generated.

use crate::cli::terminal::terminal_safe;
use crate::cli::{Console, Failure};
use crate::generation::{Stop, StopStrings, TextStream, TextTokenizer};
use crate::units::Exit;
use std::io::IsTerminal;
use std::ops::ControlFlow;

/// Turns ids into text (or, without a tokeniser, into decimal ids), watches it for stop strings and
/// streams it.
pub(super) struct Printer<'a> {
    console: &'a Console,
    stream: Option<TextStream<'a>>,
    stops: StopStrings<'a>,
    stopped: bool,
    /// `false` with `--json` and for several prompts: the text is only collected.
    streams: bool,
    text: String,
}

impl<'a> Printer<'a> {
    pub(super) fn new(
        console: &'a Console,
        tokenizer: Option<&'a TextTokenizer>,
        show_control: bool,
        stops: &'a [String],
        streams: bool,
    ) -> Printer<'a> {
        Printer {
            console,
            stream: tokenizer.map(|t| t.stream(show_control)),
            stops: StopStrings::new(stops),
            stopped: false,
            streams,
            text: String::new(),
        }
    }

    /// Prints what a token completes, up to a stop string.
    ///
    /// # Errors
    /// stdout is closed or full, or the tokeniser does not know the id.
    pub(super) fn token(&mut self, id: u32) -> Result<ControlFlow<Stop>, Failure> {
        let piece = match &mut self.stream {
            Some(stream) => stream.push(id).map_err(|e| Failure::new(Exit::Internal, e))?,
            None if self.text.is_empty() => id.to_string(),
            None => format!(" {id}"),
        };
        self.pass(&piece)
    }

    /// Prints an unfinished character at the end, what was held back as a possible stop string
    /// and, on a terminal, the line end that the text lacks. Gives the whole text.
    ///
    /// # Errors
    /// stdout is closed or full.
    pub(super) fn finish(mut self) -> Result<String, Failure> {
        if !self.stopped {
            let tail = self.stream.take().map(TextStream::finish).unwrap_or_default();
            _ = self.pass(&tail)?;
        }
        if !self.stopped {
            let held = std::mem::replace(&mut self.stops, StopStrings::new(&[])).finish();
            self.print(&held)?;
        }
        let terminal = std::io::stdout().is_terminal();
        if self.streams && terminal && !self.text.is_empty() && !self.text.ends_with('\n') {
            self.console.stream("\n")?;
        }
        Ok(self.text)
    }

    fn pass(&mut self, piece: &str) -> Result<ControlFlow<Stop>, Failure> {
        let passed = self.stops.push(piece);
        self.print(&passed.text)?;
        self.stopped = passed.stopped.is_some();
        Ok(match passed.stopped {
            Some(stop) => ControlFlow::Break(Stop::StopString(stop)),
            None => ControlFlow::Continue(()),
        })
    }

    fn print(&mut self, piece: &str) -> Result<(), Failure> {
        self.text.push_str(piece);
        if self.streams && !piece.is_empty() {
            show(self.console, piece)?;
        }
        Ok(())
    }
}

/// Generated text on stdout: made safe for a terminal, unchanged elsewhere.
pub(super) fn show(console: &Console, text: &str) -> Result<(), Failure> {
    if std::io::stdout().is_terminal() {
        console.stream(&terminal_safe(text, &[]))?;
    } else {
        console.stream(text)?;
    }
    Ok(())
}
