//! Why records could not be written or read.

use std::path::{Path, PathBuf};

/// Records could not be written or read. Whatever was recorded before stays as it is.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    #[error("cannot {action} {}: {source}; records written before are intact", path.display())]
    Write { action: &'static str, path: PathBuf, source: std::io::Error },
    #[error("cannot read {}: {source}", path.display())]
    Read { path: PathBuf, source: std::io::Error },
    #[error("{}:{line}: {message}", path.display())]
    Line { path: PathBuf, line: usize, message: String },
    #[error("{}: {message}", path.display())]
    Run { path: PathBuf, message: String },
    #[error(
        "{} was written by a newer version of assay (record version {found}, this one reads up to \
         {known})", path.display()
    )]
    Newer { path: PathBuf, found: u32, known: u32 },
}

impl RecordError {
    pub(super) fn write(
        action: &'static str,
        path: &Path,
    ) -> impl FnOnce(std::io::Error) -> RecordError {
        let path = path.to_owned();
        move |source| RecordError::Write { action, path, source }
    }

    pub(super) fn read(path: &Path) -> impl FnOnce(std::io::Error) -> RecordError {
        let path = path.to_owned();
        move |source| RecordError::Read { path, source }
    }
}
