//! Texts that end a generation, found across tokens and while streaming.

/// Watches a text that arrives in pieces for the first of some stop strings.
///
/// What could still become a stop string is held back, so nothing of a stop string is ever given
/// out, whichever way the text is cut into pieces.
#[derive(Clone, Debug)]
pub struct StopStrings<'a> {
    stops: &'a [String],
    held: String,
}

/// What a piece led to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Passed {
    /// Text that is certainly no part of a stop string.
    pub text: String,
    /// The stop string (by its place in the list) that begins right behind it.
    pub stopped: Option<usize>,
}

impl<'a> StopStrings<'a> {
    /// A watch for these strings, none of them empty.
    pub fn new(stops: &'a [String]) -> StopStrings<'a> {
        debug_assert!(stops.iter().all(|s| !s.is_empty()), "an empty text is everywhere");
        StopStrings { stops, held: String::new() }
    }

    /// Takes the next piece. After a stop nothing more may be pushed.
    ///
    /// The stop string that begins first counts; of those that begin at one place, the first in the
    /// list.
    pub fn push(&mut self, piece: &str) -> Passed {
        self.held.push_str(piece);
        let found = self
            .stops
            .iter()
            .enumerate()
            .filter_map(|(i, stop)| self.held.find(stop.as_str()).map(|at| (at, i)))
            .min();
        if let Some((at, i)) = found {
            self.held.truncate(at);
            return Passed { text: std::mem::take(&mut self.held), stopped: Some(i) };
        }
        let keep = self.stops.iter().map(|stop| overlap(&self.held, stop)).max().unwrap_or(0);
        let rest = self.held.split_off(self.held.len() - keep);
        Passed { text: std::mem::replace(&mut self.held, rest), stopped: None }
    }

    /// The text that was held back, at the end of the generation.
    pub fn finish(self) -> String {
        self.held
    }
}

/// Bytes at the end of `text` that begin `stop` without being all of it.
fn overlap(text: &str, stop: &str) -> usize {
    let ends = stop.char_indices().map(|(at, _)| at).filter(|at| *at > 0);
    ends.filter(|at| text.ends_with(&stop[..*at])).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(stops: &[&str], pieces: &[&str]) -> (String, Option<usize>) {
        let stops: Vec<String> = stops.iter().map(ToString::to_string).collect();
        let mut watch = StopStrings::new(&stops);
        let mut text = String::new();
        for piece in pieces {
            let passed = watch.push(piece);
            text += &passed.text;
            if passed.stopped.is_some() {
                return (text, passed.stopped);
            }
        }
        (text + &watch.finish(), None)
    }

    /// However a text is cut into pieces, the same part of it passes.
    #[test]
    fn cuts_do_not_matter() {
        let text = "one\n\nUser: aab aaab 🙂🙂 end";
        for stops in [&["aaab"][..], &["\n\nUser:"], &["🙂🙂"], &["never"], &["ser", "User"]] {
            let expected = run(stops, &[text]);
            let cuts: Vec<usize> = text.char_indices().map(|(at, _)| at).collect();
            for a in &cuts {
                for b in cuts.iter().filter(|b| *b >= a) {
                    let pieces = [&text[..*a], &text[*a..*b], &text[*b..]];
                    assert_eq!(run(stops, &pieces), expected, "{stops:?} {pieces:?}");
                }
            }
            let letters: Vec<String> = text.chars().map(String::from).collect();
            let letters: Vec<&str> = letters.iter().map(String::as_str).collect();
            assert_eq!(run(stops, &letters), expected, "{stops:?} letter by letter");
        }
    }

    #[test]
    fn the_first_place_counts_then_the_first_in_the_list() {
        assert_eq!(run(&["b", "ab"], &["xab"]), ("x".into(), Some(1)));
        assert_eq!(run(&["ab", "abc"], &["xabc"]), ("x".into(), Some(0)));
        assert_eq!(run(&["abc", "b"], &["xab", "d"]), ("xa".into(), Some(1)));
        assert_eq!(run(&["abc"], &["xab"]), ("xab".into(), None));
    }

    /// Nothing that might be part of a stop string comes early.
    #[test]
    fn the_beginning_of_a_stop_string_is_held_back() {
        let stops = ["stop".to_owned()];
        let mut watch = StopStrings::new(&stops);
        assert_eq!(watch.push("a st"), Passed { text: "a ".into(), stopped: None });
        assert_eq!(watch.push("ep"), Passed { text: "step".into(), stopped: None });
        assert_eq!(watch.push(" sto"), Passed { text: " ".into(), stopped: None });
        assert_eq!(watch.push("p!"), Passed { text: String::new(), stopped: Some(0) });
    }
}
