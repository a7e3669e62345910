//! One mapped file.

use super::header::{self, Header};
use super::{CheckpointError, Rule};
use memmap2::Mmap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A safetensors file: its map and its checked header.
#[derive(Debug)]
pub(super) struct MappedFile {
    pub(super) path: PathBuf,
    pub(super) map: Arc<Mmap>,
    pub(super) header: Header,
}

/// Maps `path` and checks its header. The file handle is closed; the map alone keeps the content.
pub(super) fn open(path: PathBuf) -> Result<MappedFile, CheckpointError> {
    let map = Arc::new(map(&path)?);
    let header = header::parse(&path, &map)?;
    Ok(MappedFile { path, map, header })
}

fn map(path: &Path) -> Result<Mmap, CheckpointError> {
    let unreadable = |e: std::io::Error| unreadable(path, &e);
    // Asked before opening, because opening a pipe would wait for a writer.
    let metadata = std::fs::metadata(path).map_err(unreadable)?;
    if !metadata.is_file() {
        return Err(CheckpointError::new(path, Rule::RegularFile, kind_of(&metadata)));
    }
    let file = File::open(path).map_err(unreadable)?;
    // SAFETY: the map is read-only and is read as plain numbers, for which any content is valid.
    // Truncating the file while it is mapped would end the process with a bus error; like every
    // mapping reader we require that checkpoints are not modified in place while in use
    // (docs/checkpoints.md says so).
    unsafe { Mmap::map(&file) }.map_err(unreadable)
}

/// An input/output error of `path`.
pub(super) fn unreadable(path: &Path, error: &std::io::Error) -> CheckpointError {
    CheckpointError::new(path, Rule::Readable, error.to_string())
}

/// What lies where a regular file should be.
pub(super) fn kind_of(metadata: &std::fs::Metadata) -> &'static str {
    if metadata.is_dir() { "a folder" } else { "a pipe, socket or device" }
}
