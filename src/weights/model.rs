//! A model folder: its descriptor and its checkpoint, each read once and checked before use.

use super::{Checkpoint, CheckpointError, LoadOptions, WeightSet};
use crate::descriptor::{Descriptor, DescriptorError, from_dir_with};
use std::path::Path;

/// A Hugging Face folder, opened: what the model is and where its weights lie.
#[derive(Clone, Debug)]
pub struct Model {
    pub descriptor: Descriptor,
    pub checkpoint: Checkpoint,
}

/// Why a model folder was refused.
#[derive(Debug, thiserror::Error)]
pub enum ModelError {
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    #[error(transparent)]
    Descriptor(#[from] DescriptorError),
}

impl ModelError {
    /// Whether reading failed, as opposed to the content being refused.
    pub fn is_io(&self) -> bool {
        match self {
            ModelError::Checkpoint(e) => e.is_io(),
            ModelError::Descriptor(e) => matches!(e, DescriptorError::Io { .. }),
        }
    }
}

impl Model {
    /// Opens a folder: first the weight files, whose headers are untrusted input, then the config
    /// against the names found in them.
    ///
    /// # Errors
    /// The first file that is refused, and why. Nothing stays open or mapped.
    pub fn open(folder: impl AsRef<Path>) -> Result<Model, ModelError> {
        let folder = folder.as_ref();
        let checkpoint = Checkpoint::open(folder)?;
        let descriptor = from_dir_with(folder, Some(&checkpoint.tensor_index()))?;
        Ok(Model { descriptor, checkpoint })
    }

    /// As [`Model::open`] with a descriptor from elsewhere instead of the folder's config.
    ///
    /// # Errors
    /// As [`Checkpoint::open`].
    pub fn with_descriptor(
        folder: impl AsRef<Path>,
        descriptor: Descriptor,
    ) -> Result<Model, ModelError> {
        Ok(Model { checkpoint: Checkpoint::open(folder)?, descriptor })
    }

    /// Loads the weights.
    ///
    /// # Errors
    /// As [`Checkpoint::load_with`].
    pub fn load(&self, options: &LoadOptions<'_>) -> Result<WeightSet, ModelError> {
        Ok(self.checkpoint.load_with(&self.descriptor, options)?)
    }
}
