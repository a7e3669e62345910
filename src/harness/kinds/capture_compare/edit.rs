//! The single difference of the right capture.

use crate::engine::manifest::Execution;
use crate::harness::capture::{Capture, Prompt, RecordOptions};
use crate::placement::Device;
use crate::units::UNAVAILABLE;
use crate::weights::{Checkpoint, WriteOptions};
use serde::Deserialize;
use std::path::{Path, PathBuf};

/// What is altered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum Edit {
    /// The lowest bit of one logit.
    OneBit,
    /// One logit becomes NaN, in both captures alike.
    NanOnBothSides,
    /// One greedy token.
    GreedyToken,
    /// The file keeps its arrays and loses its metadata.
    NoManifest,
    /// Both at once.
    NoManifestAndOneBit,
    /// Recorded without states.
    NoStates,
    /// One token of the first prompt.
    PromptToken,
    /// Another commit.
    Build,
    /// Another processor.
    Machine,
    /// Another device.
    Placement,
    /// The weights without their files.
    Storage,
    /// The revision of the build is not known, in both captures alike.
    UnknownRevisionOnBothSides,
    /// The processor is not known, in both captures alike.
    UnknownProcessorOnBothSides,
    /// A fact of the run that is not compared.
    Time,
}

impl Edit {
    /// Whether both captures are altered.
    pub(super) fn both(self) -> bool {
        matches!(
            self,
            Edit::NanOnBothSides
                | Edit::UnknownRevisionOnBothSides
                | Edit::UnknownProcessorOnBothSides
        )
    }

    /// Whether the file alone is altered, so that a plain capture can be its start.
    pub(super) fn in_the_file(self) -> bool {
        matches!(
            self,
            Edit::OneBit
                | Edit::NanOnBothSides
                | Edit::GreedyToken
                | Edit::NoManifest
                | Edit::NoManifestAndOneBit
        )
    }

    /// Alters what is fed in and recorded.
    pub(super) fn inputs(self, prompts: &mut [Prompt], options: &mut RecordOptions) {
        match self {
            Edit::NoStates => options.states = false,
            Edit::PromptToken => prompts[0].token_ids[0] ^= 1,
            _ => {}
        }
    }

    /// Alters the facts that the manifest is made from.
    pub(super) fn facts(self, execution: &mut Execution<'_>) {
        match self {
            Edit::Build => {
                execution.build.git_revision = "2222222222222222222222222222222222222222"
            }
            Edit::UnknownRevisionOnBothSides => {
                execution.build.git_revision = UNAVAILABLE;
                execution.build.git_dirty = None;
            }
            Edit::Machine => execution.run.machine.cpu.model = Some("another processor".into()),
            Edit::UnknownProcessorOnBothSides => execution.run.machine.cpu.model = None,
            Edit::Placement => execution.placement.devices = vec![Device::Cuda(1)],
            Edit::Storage => execution.checkpoint = None,
            Edit::Time => execution.run.time_utc = "2031-05-09T14:03:59Z".into(),
            _ => {}
        }
    }

    /// Alters the file.
    pub(super) fn file(self, path: &Path) -> Result<PathBuf, String> {
        let patch = |prefix: &str, change: &dyn Fn(&mut [u8])| patch(path, prefix, change);
        match self {
            Edit::OneBit => patch("logits.", &|bytes| bytes[0] ^= 1)?,
            Edit::NanOnBothSides => {
                patch("logits.", &|bytes| bytes[..4].copy_from_slice(&f32::NAN.to_le_bytes()))?;
            }
            Edit::GreedyToken => patch("greedy.", &|bytes| bytes[0] ^= 1)?,
            Edit::NoManifest => return without_metadata(path),
            Edit::NoManifestAndOneBit => {
                patch("logits.", &|bytes| bytes[0] ^= 1)?;
                return without_metadata(path);
            }
            _ => {}
        }
        Ok(path.to_owned())
    }
}

/// Changes the bytes of the first array whose name begins with `prefix`.
fn patch(path: &Path, prefix: &str, change: &dyn Fn(&mut [u8])) -> Result<(), String> {
    let capture = Capture::open(path).map_err(|e| e.to_string())?;
    let mut tensors = capture.arrays.tensors();
    let (_, entry) = tensors.find(|(name, _)| name.starts_with(prefix)).ok_or("no such array")?;
    let range = entry.start_bytes..entry.start_bytes + entry.size_bytes;
    drop(tensors);
    drop(capture);
    let mut bytes = std::fs::read(path).map_err(|e| e.to_string())?;
    change(&mut bytes[range]);
    std::fs::write(path, bytes).map_err(|e| e.to_string())
}

/// The same arrays in a file of their own.
fn without_metadata(path: &Path) -> Result<PathBuf, String> {
    let folder = path.with_extension("plain");
    std::fs::create_dir(&folder).map_err(|e| e.to_string())?;
    let arrays = Checkpoint::open(path).map_err(|e| e.to_string())?;
    let written = arrays.rewrite(&folder, str::to_owned, &WriteOptions::default());
    written.map_err(|e| e.to_string())?.into_iter().next().ok_or("nothing was written".into())
}
