//! Keeps what messages say apart from what the template writes.
//!
//! A template joins texts, and afterwards nobody can tell who wrote `<|im_end|>`. So before
//! rendering, every spelling of a control token inside a message is broken by a mark, a private
//! character that neither messages nor template contain, and so is a message's end that could
//! become one together with the text that follows it. Templates copy the mark like any other
//! character. Afterwards it is taken out, and its places are remembered: a control token that
//! spans one was not written by the template.

/// A rendered conversation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rendered {
    /// The text that the model is to continue.
    pub text: String,
    /// Byte offsets inside spellings of control tokens that messages contain; ascending.
    pub(crate) guards: Vec<usize>,
}

impl Rendered {
    /// The first of these control tokens that a message spells.
    pub fn spelt_by_messages<'t>(
        &self,
        control: impl IntoIterator<Item = &'t str>,
    ) -> Option<&'t str> {
        control.into_iter().find(|token| {
            self.text
                .match_indices(token)
                .any(|(start, found)| !self.is_template_text(start, start + found.len()))
        })
    }

    /// Whether a control token's spelling at these bytes was written by the template: no guard
    /// lies strictly inside.
    pub(crate) fn is_template_text(&self, start: usize, end: usize) -> bool {
        let next = self.guards.partition_point(|g| *g <= start);
        self.guards.get(next).is_none_or(|g| *g >= end)
    }
}

/// Breaks the spellings of control tokens.
#[derive(Clone, Debug)]
pub(super) struct Guard {
    mark: char,
    control: Vec<String>,
}

impl Guard {
    /// A guard against these control tokens with a mark that occurs in none of `texts`; `None` if
    /// every candidate occurs.
    pub(super) fn new<'t>(
        control: impl IntoIterator<Item = &'t str>,
        texts: &[&str],
    ) -> Option<Guard> {
        let mark = ('\u{10ff00}'..='\u{10fffd}').find(|c| !texts.iter().any(|t| t.contains(*c)))?;
        let control = control.into_iter().filter(|c| c.chars().nth(1).is_some());
        Some(Guard { mark, control: control.map(str::to_owned).collect() })
    }

    /// The text with a mark in every control token that it spells, and in an end that begins one.
    pub(super) fn protect(&self, text: &str) -> String {
        let mut breaks: Vec<usize> = Vec::new();
        for control in &self.control {
            let first = control.chars().next().map_or(0, char::len_utf8);
            let mut from = 0;
            while let Some(at) = text[from..].find(control.as_str()) {
                breaks.push(from + at + first);
                from += at + first;
            }
            // Templates may trim a message and write right behind it.
            let trimmed = text.trim_end();
            let longest = control
                .char_indices()
                .map(|(at, _)| at)
                .filter(|at| *at > 0 && trimmed.ends_with(&control[..*at]))
                .max();
            if longest.is_some() {
                breaks.push(trimmed.len());
            }
        }
        if breaks.is_empty() {
            return text.to_owned();
        }
        breaks.sort_unstable();
        breaks.dedup();
        let mut protected = String::with_capacity(text.len() + breaks.len() * 4);
        let mut from = 0;
        for at in breaks {
            protected.push_str(&text[from..at]);
            protected.push(self.mark);
            from = at;
        }
        protected + &text[from..]
    }

    /// Takes the marks out and remembers their places.
    pub(super) fn unmark(&self, marked: &str) -> Rendered {
        let mut rendered =
            Rendered { text: String::with_capacity(marked.len()), guards: Vec::new() };
        for (i, piece) in marked.split(self.mark).enumerate() {
            if i > 0 && rendered.guards.last() != Some(&rendered.text.len()) {
                rendered.guards.push(rendered.text.len());
            }
            rendered.text.push_str(piece);
        }
        rendered
    }
}
