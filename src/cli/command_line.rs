//! The command line as records keep it.

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
