//! Reading a capture, or any other safetensors file with arrays in it.

use super::write::{FORMAT, FORMAT_KEY, INFO_KEY, MANIFEST_KEY};
use super::{CAPTURE_VERSION, CaptureError, CaptureInfo};
use crate::engine::manifest::Manifest;
use crate::weights::{Checkpoint, CheckpointError};
use std::path::{Path, PathBuf};

/// A mapped capture.
#[derive(Clone, Debug)]
pub struct Capture {
    pub path: PathBuf,
    /// Its arrays, by name.
    pub arrays: Checkpoint,
    /// What was executed; `None` where the file does not say.
    pub info: Option<CaptureInfo>,
    /// Which execution it was; `None` where the file does not say.
    pub manifest: Option<Manifest>,
}

impl Capture {
    /// Opens a safetensors file. One without a manifest is accepted: its arrays can be compared,
    /// and nothing is assumed about them.
    ///
    /// # Errors
    /// The file breaks a rule of the format, or its manifest is not the one it claims to be.
    pub fn open(path: &Path) -> Result<Capture, CaptureError> {
        let arrays = Checkpoint::open(path).map_err(plain)?;
        let metadata = |key| arrays.metadata().get(key).map(String::as_str);
        let refuse = |key, message| CaptureError::Metadata { path: path.to_owned(), key, message };
        let info = match metadata(INFO_KEY) {
            Some(text) if metadata(FORMAT_KEY) == Some(FORMAT) => {
                let info: CaptureInfo =
                    serde_json::from_str(text).map_err(|e| refuse(INFO_KEY, e.to_string()))?;
                if info.capture_version > CAPTURE_VERSION {
                    let message = format!(
                        "capture_version {}; this build reads up to {CAPTURE_VERSION}",
                        info.capture_version
                    );
                    return Err(refuse(INFO_KEY, message));
                }
                Some(info)
            }
            _ => None,
        };
        let manifest = match metadata(MANIFEST_KEY) {
            Some(text) => Some(
                Manifest::from_json(text.as_bytes())
                    .map_err(|e| refuse(MANIFEST_KEY, e.to_string()))?,
            ),
            None => None,
        };
        Ok(Capture { path: path.to_owned(), arrays, info, manifest })
    }
}

/// A file that cannot be read is said to be in the system's words: a capture is no checkpoint whose
/// rules were broken.
fn plain(error: CheckpointError) -> CaptureError {
    if error.is_io() {
        CaptureError::Io { path: error.file, source: std::io::Error::other(error.found) }
    } else {
        CaptureError::Unreadable(error)
    }
}
