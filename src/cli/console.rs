//! The one place that prints: the product on stdout, everything else on stderr.

use super::failure::unless_closed;
use super::terminal::terminal_safe;
use clap::ColorChoice;
use std::borrow::Cow;
use std::io::{self, IsTerminal, Write};

/// How to print.
#[derive(Clone, Debug)]
pub(crate) struct Console {
    stdout_color: bool,
    stderr_color: bool,
    quiet: bool,
    json: bool,
}

/// What a piece of text means; the console decides how that looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tone {
    Good,
    Bad,
    Caution,
    Dim,
    Strong,
}

impl Tone {
    const ALL: [Tone; 5] = [Tone::Good, Tone::Bad, Tone::Caution, Tone::Dim, Tone::Strong];

    fn code(self) -> &'static str {
        match self {
            Tone::Good => "32",
            Tone::Bad => "1;31",
            Tone::Caution => "33",
            Tone::Dim => "2",
            Tone::Strong => "1",
        }
    }
}

/// Whoever read stdout is gone.
#[derive(Debug, thiserror::Error)]
#[error("the reader of the output is gone")]
pub(super) struct ReaderGone;

fn write(text: &str) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(text.as_bytes())?;
    stdout.flush()
}

impl Console {
    /// A console for the global flags.
    pub(crate) fn new(color: ColorChoice, quiet: bool, json: bool) -> Console {
        let wanted = |terminal: bool| match color {
            ColorChoice::Always => true,
            ColorChoice::Never => false,
            ColorChoice::Auto => {
                let set = |name| std::env::var_os(name).is_some_and(|v| !v.is_empty());
                terminal && !set("NO_COLOR") && std::env::var_os("TERM").is_none_or(|t| t != "dumb")
            }
        };
        Console {
            stdout_color: wanted(io::stdout().is_terminal()),
            stderr_color: wanted(io::stderr().is_terminal()),
            quiet,
            json,
        }
    }

    /// Whether `--json` was given.
    pub(crate) fn json(&self) -> bool {
        self.json
    }

    /// Whether `--quiet` was given.
    pub(crate) fn quiet(&self) -> bool {
        self.quiet
    }

    /// Columns to print in: the terminal's, or 100 elsewhere.
    pub(crate) fn width(&self) -> usize {
        let columns = std::env::var("COLUMNS").ok().and_then(|c| c.parse::<usize>().ok());
        columns
            .or_else(|| terminal_size::terminal_size().map(|(width, _)| usize::from(width.0)))
            .unwrap_or(100)
            .clamp(40, 160)
    }

    /// Whether text on stdout is coloured.
    pub(crate) fn colors_stdout(&self) -> bool {
        self.stdout_color
    }

    /// Whether progress may be drawn: stderr is a terminal and `--quiet` was not given.
    pub(crate) fn progress(&self) -> bool {
        !self.quiet && io::stderr().is_terminal()
    }

    /// Writes the product of the command to stdout: unchanged into files and pipes, without the control
    /// characters of others on a terminal. A reader that went away (`assay … | head`) has seen enough: the
    /// command goes on to its own exit code.
    ///
    /// # Errors
    /// The write failed, as on a full disk.
    pub(crate) fn product(&self, text: &str) -> io::Result<()> {
        unless_closed(write(&shown(text, io::stdout().is_terminal())))
    }

    /// As [`Console::product`], for text that is still being made: without a reader there is nothing
    /// to make it for.
    ///
    /// # Errors
    /// The write failed; a closed pipe is a [`ReaderGone`], which ends the command in silence.
    pub(crate) fn stream(&self, text: &str) -> io::Result<()> {
        write(text).map_err(|error| match error.kind() {
            io::ErrorKind::BrokenPipe => io::Error::new(error.kind(), ReaderGone),
            _ => error,
        })
    }

    /// Writes a value as indented JSON and a line end to stdout.
    ///
    /// # Errors
    /// As [`Console::product`].
    pub(crate) fn product_json(&self, value: &impl serde::Serialize) -> io::Result<()> {
        self.product(&(serde_json::to_string_pretty(value)? + "\n"))
    }

    /// A note on stderr; not with `--quiet`.
    pub(crate) fn note(&self, text: &str) {
        if !self.quiet {
            self.diagnostic(text);
        }
    }

    /// A line on stderr, also with `--quiet`.
    pub(crate) fn diagnostic(&self, text: &str) {
        let text = shown(text, io::stderr().is_terminal());
        // Nobody is left to tell when stderr is closed.
        let _ = writeln!(io::stderr().lock(), "{text}");
    }

    /// A warning on stderr.
    pub(crate) fn warning(&self, text: &str) {
        self.diagnostic(&format!("{} {text}", self.paint_stderr("warning:", Tone::Caution)));
    }

    /// An error on stderr.
    pub(crate) fn error(&self, text: &str) {
        self.diagnostic(&format!("{} {text}", self.paint_stderr("error:", Tone::Bad)));
    }

    /// Text coloured for stdout, where colours are wanted.
    pub(crate) fn paint(&self, text: &str, tone: Tone) -> String {
        paint(text, tone, self.stdout_color)
    }

    /// Text coloured for stderr, where colours are wanted.
    pub(crate) fn paint_stderr(&self, text: &str, tone: Tone) -> String {
        paint(text, tone, self.stderr_color)
    }
}

/// The text as it is printed: a terminal gets no control characters but those of [`paint`].
fn shown(text: &str, terminal: bool) -> Cow<'_, str> {
    if !terminal {
        return Cow::Borrowed(text);
    }
    let mut tones = Tone::ALL.map(Tone::code).to_vec();
    tones.push("0");
    terminal_safe(text, &tones)
}

fn paint(text: &str, tone: Tone, color: bool) -> String {
    if color { format!("\x1b[{}m{text}\x1b[0m", tone.code()) } else { text.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_file_says_reaches_a_terminal_without_its_control_characters() {
        let tones = Tone::ALL.map(|tone| paint("x", tone, true)).concat();
        assert_eq!(shown(&tones, true), tones, "our own colours stay");
        let hostile = "`\u{1b}]0;owned\u{7}\u{1b}[2J`: unknown key";
        assert_eq!(shown(hostile, true), "`␛]0;owned␇␛[2J`: unknown key");
        assert_eq!(shown(hostile, false), hostile, "files and pipes get what was said");
    }
}
