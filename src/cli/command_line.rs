//! The command line as records keep it.

use super::Failure;
use std::collections::BTreeMap;
use std::path::Path;

/// The arguments of this process, with the name of the program alone: where it lies is about the
/// machine, and often says who owns it. What is not Unicode has replacement characters.
pub(crate) fn command_line() -> Vec<String> {
    std::env::args_os()
        .enumerate()
        .map(|(i, argument)| match Path::new(&argument).file_name() {
            Some(name) if i == 0 => name.to_string_lossy().into_owned(),
            _ => argument.to_string_lossy().into_owned(),
        })
        .collect()
}

/// The values of `--set`.
///
/// # Errors
/// A key that is given twice: one of the values would be lost.
pub(crate) fn set_values(pairs: &[(String, String)]) -> Result<BTreeMap<String, String>, Failure> {
    let mut set = BTreeMap::new();
    for (key, value) in pairs {
        if let Some(before) = set.insert(key.clone(), value.clone()) {
            let message = format!("--set {key} is given twice, `{before}` and `{value}`");
            return Err(Failure::usage(message));
        }
    }
    Ok(set)
}

/// A word as a shell takes it: as it stands, or in quotes where it holds what a shell would expand.
pub(crate) fn shell_word(word: &str) -> String {
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
