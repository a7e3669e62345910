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
