//! A located message about a file that a person wrote.

use crate::units::nearest;
use std::fmt;
use std::path::{Path, PathBuf};

/// What is wrong in a file, where, and what to write instead.
///
/// Displayed as
///
/// ```text
/// gates/example.yaml:7:3: unknown key `tolerence`
///   |
/// 7 |   tolerence: 1e-3
///   |   ^^^^^^^^^ did you mean `tolerance`?
///   = expected: one of `check`, `tolerance`
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic {
    pub path: PathBuf,
    /// 1-based line and column (in characters), where known.
    pub position: Option<(usize, usize)>,
    pub message: String,
    pub expected: Option<String>,
    pub found: Option<String>,
    pub help: Option<String>,
    /// The line of the file and the number of characters to underline.
    pub excerpt: Option<(String, usize)>,
}

impl Diagnostic {
    /// A message about a whole file.
    pub fn new(path: &Path, message: impl Into<String>) -> Diagnostic {
        Diagnostic {
            path: path.to_owned(),
            position: None,
            message: message.into(),
            expected: None,
            found: None,
            help: None,
            excerpt: None,
        }
    }

    /// Points at a place of `text`, underlining `length` characters (at least one).
    pub fn at(mut self, text: &str, line: usize, column: usize, length: usize) -> Diagnostic {
        self.position = Some((line, column));
        self.excerpt = text.lines().nth(line.saturating_sub(1)).map(|content| {
            let rest = content.chars().count().saturating_sub(column - 1);
            (content.to_owned(), length.clamp(1, rest.max(1)))
        });
        self
    }

    /// Adds what was expected.
    pub fn expected(mut self, expected: impl Into<String>) -> Diagnostic {
        self.expected = Some(expected.into());
        self
    }

    /// Adds what to do.
    pub fn help(mut self, help: Option<String>) -> Diagnostic {
        self.help = help;
        self
    }
}

/// Longer lines are shown around the caret only.
const EXCERPT_CHARS: usize = 100;

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.path.display())?;
        if let Some((line, column)) = self.position {
            write!(f, ":{line}:{column}")?;
        }
        write!(f, ": {}", self.message)?;
        let mut margin = String::from("  ");
        let mut help = self.help.as_deref();
        if let (Some((line, column)), Some((content, length))) = (self.position, &self.excerpt) {
            let number = line.to_string();
            margin = " ".repeat(number.len());
            let (shown, before) = window(content, column - 1);
            writeln!(f, "\n{margin} |")?;
            writeln!(f, "{number} | {shown}")?;
            let carets = "^".repeat((*length).min(EXCERPT_CHARS - before.min(EXCERPT_CHARS - 1)));
            write!(f, "{margin} | {}{carets}", " ".repeat(before))?;
            if let Some(text) = help.take() {
                write!(f, " {text}")?;
            }
        }
        for (label, text) in [("expected", &self.expected), ("found", &self.found)] {
            if let Some(text) = text {
                write!(f, "\n{margin} = {label}: {text}")?;
            }
        }
        if let Some(text) = help {
            write!(f, "\n{margin} = {text}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Diagnostic {}

/// The part of a line around a character, control characters made visible, and the number of
/// characters in front of it.
fn window(content: &str, at: usize) -> (String, usize) {
    let start = if at < EXCERPT_CHARS { 0 } else { at - EXCERPT_CHARS / 2 };
    let shown = content
        .chars()
        .skip(start)
        .take(EXCERPT_CHARS)
        .map(|c| match c {
            '\t' => '→',
            c if c.is_control() => '·',
            c => c,
        })
        .collect();
    (shown, at - start)
}

/// `did you mean …?` for the nearest candidate, or nothing.
pub(in crate::harness) fn did_you_mean<'a>(
    found: &str,
    candidates: impl IntoIterator<Item = &'a str>,
) -> Option<String> {
    nearest(found, candidates).map(|name| format!("did you mean `{name}`?"))
}
