//! Words of a command line that is printed to be typed.

/// A word as a POSIX shell takes it: as it stands, or in quotes where it holds what a shell would expand.
pub fn shell_word(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-./:=,+@%".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::shell_word;

    #[test]
    fn words_reach_a_program_as_they_are() {
        assert_eq!(shell_word("tag:long"), "tag:long");
        assert_eq!(shell_word("*-invariance"), "'*-invariance'");
        assert_eq!(shell_word("it's a model"), r"'it'\''s a model'");
        assert_eq!(shell_word(""), "''");
    }
}
