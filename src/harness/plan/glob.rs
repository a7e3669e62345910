//! What a word on the command line selects.

/// A word of `assay gates run …`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pattern {
    /// Every gate.
    All,
    /// Gates with a tag.
    Tag(String),
    /// Gates whose name matches; trials where it has a `/`.
    Name(String),
    /// A gate file.
    File(std::path::PathBuf),
}

impl Pattern {
    /// Reads a word. One that ends in `.yaml` or `.yml` is a file.
    pub fn parse(word: &str) -> Pattern {
        if word == "all" {
            Pattern::All
        } else if let Some(tag) = word.strip_prefix("tag:") {
            Pattern::Tag(tag.to_owned())
        } else if word.ends_with(".yaml") || word.ends_with(".yml") {
            Pattern::File(word.into())
        } else {
            Pattern::Name(word.to_owned())
        }
    }

    /// Whether the pattern is about trials rather than whole gates.
    pub fn is_about_trials(&self) -> bool {
        matches!(self, Pattern::Name(name) if name.contains('/'))
    }

    /// Whether it selects this trial of a gate.
    pub fn selects(
        &self,
        gate: &str,
        tags: &[String],
        path: &std::path::Path,
        trial: &str,
    ) -> bool {
        match self {
            Pattern::All => true,
            Pattern::Tag(tag) => tags.contains(tag),
            Pattern::File(file) => path == file,
            Pattern::Name(name) if name.contains('/') => glob_matches(name, trial),
            Pattern::Name(name) => glob_matches(name, gate),
        }
    }
}

/// Whether `text` matches a pattern in which `*` is any run of characters and `?` any one.
pub fn glob_matches(pattern: &str, text: &str) -> bool {
    let (pattern, text): (Vec<char>, Vec<char>) =
        (pattern.chars().collect(), text.chars().collect());
    let (mut p, mut t) = (0, 0);
    // The last star and how much of the text it has swallowed: on a mismatch it takes one more.
    let mut star: Option<(usize, usize)> = None;
    while t < text.len() {
        if p < pattern.len() && pattern[p] == '*' {
            star = Some((p, t));
            p += 1;
        } else if p < pattern.len() && (pattern[p] == '?' || pattern[p] == text[t]) {
            p += 1;
            t += 1;
        } else if let Some((at, taken)) = star {
            star = Some((at, taken + 1));
            p = at + 1;
            t = taken + 1;
        } else {
            return false;
        }
    }
    pattern[p..].iter().all(|c| *c == '*')
}

#[cfg(test)]
mod tests {
    use super::glob_matches;

    #[test]
    fn stars_and_question_marks() {
        for (pattern, text, expected) in [
            ("attention-*", "attention-invariance", true),
            ("attention-*", "gdn-invariance", false),
            ("*-invariance", "attention-invariance", true),
            ("*a*b*c", "xaybzc", true),
            ("*a*b*c", "xaybz", false),
            ("gate/cpu/*/decode*", "gate/cpu/f32/decode/heads=4x2", true),
            ("g?te", "gate", true),
            ("", "", true),
            ("*", "", true),
            ("a", "", false),
        ] {
            assert_eq!(glob_matches(pattern, text), expected, "{pattern} {text}");
        }
    }
}
