//! Where a capture may be written: over another capture, and over nothing else.

use super::CaptureError;
use super::write::{FORMAT, FORMAT_KEY};
use crate::weights::Checkpoint;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// The file that a capture for `path` is written to, links followed: one that is not there yet, an
/// empty one or a capture.
///
/// # Errors
/// [`CaptureError::Occupied`] for anything else: a capture takes the place of its name, so that a
/// device would be gone for every process, and a file of the user's lost.
pub fn destination(path: &Path) -> Result<PathBuf, CaptureError> {
    let failed = |source| CaptureError::Io { path: path.to_owned(), source };
    let occupied = |found| Err(CaptureError::Occupied { path: path.to_owned(), found });
    let metadata = match std::fs::metadata(path) {
        Ok(metadata) => metadata,
        Err(e) if e.kind() == ErrorKind::NotFound => {
            return match std::fs::symlink_metadata(path) {
                Ok(_) => occupied("a link to nothing"),
                Err(_) => Ok(path.to_owned()),
            };
        }
        Err(e) => return Err(failed(e)),
    };
    if metadata.is_dir() {
        return occupied("a folder");
    }
    if !metadata.is_file() {
        return occupied("no regular file");
    }
    let path = std::fs::canonicalize(path).map_err(failed)?;
    if metadata.len() > 0 && !is_capture(&path) {
        return occupied("a file, but no capture");
    }
    Ok(path)
}

fn is_capture(path: &Path) -> bool {
    let format = |c: Checkpoint| c.metadata().get(FORMAT_KEY).is_some_and(|f| f == FORMAT);
    Checkpoint::open(path).is_ok_and(format)
}
