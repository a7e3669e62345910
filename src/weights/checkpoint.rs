//! An opened checkpoint: every tensor indexed and checked, no element read yet.

use super::header::TensorEntry;
use super::{CheckpointError, shards};
use crate::descriptor::TensorIndex;
use memmap2::Mmap;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The tensors of a safetensors checkpoint, single or sharded.
///
/// Opening checks everything that headers and index say (see `docs/checkpoints.md`) before memory
/// is allocated for weights. Elements stay in the mapped files.
#[derive(Clone, Debug)]
pub struct Checkpoint {
    main: PathBuf,
    files: Vec<(PathBuf, Arc<Mmap>)>,
    tensors: BTreeMap<String, (usize, TensorEntry)>,
    metadata: BTreeMap<String, String>,
    warnings: Vec<String>,
}

impl Checkpoint {
    /// Opens a folder in Hugging Face layout, or one `.safetensors` file.
    ///
    /// # Errors
    /// The first rule that a file breaks. Nothing stays open or mapped after an error.
    pub fn open(path: impl AsRef<Path>) -> Result<Checkpoint, CheckpointError> {
        let opened = shards::open(path.as_ref())?;
        let mut tensors = BTreeMap::new();
        let mut files = Vec::new();
        let mut metadata = BTreeMap::new();
        for (number, file) in opened.files.into_iter().enumerate() {
            for (name, entry) in file.header.tensors {
                tensors.insert(name, (number, entry));
            }
            metadata.extend(file.header.metadata);
            files.push((file.path, file.map));
        }
        Ok(Checkpoint { main: opened.main, files, tensors, metadata, warnings: opened.warnings })
    }

    /// The index of a sharded checkpoint, or the only file of a single one.
    pub fn main_file(&self) -> &Path {
        &self.main
    }

    /// The safetensors files.
    pub fn files(&self) -> impl Iterator<Item = &Path> {
        self.files.iter().map(|(path, _)| path.as_path())
    }

    /// All tensors by name, used by a model or not.
    pub fn tensors(&self) -> impl Iterator<Item = (&str, &TensorEntry)> {
        self.tensors.iter().map(|(name, (_, entry))| (name.as_str(), entry))
    }

    /// One tensor.
    pub fn tensor(&self, name: &str) -> Option<&TensorEntry> {
        self.tensors.get(name).map(|(_, entry)| entry)
    }

    /// The file that holds a tensor.
    pub fn file_of(&self, name: &str) -> Option<&Path> {
        self.tensors.get(name).map(|(file, _)| self.files[*file].0.as_path())
    }

    /// The stored bytes of a tensor.
    pub fn bytes(&self, name: &str) -> Option<&[u8]> {
        let (file, entry) = self.tensors.get(name)?;
        Some(&self.files[*file].1[entry.start_bytes..entry.start_bytes + entry.size_bytes])
    }

    /// What the headers say beside the tensors (`__metadata__`).
    pub fn metadata(&self) -> &BTreeMap<String, String> {
        &self.metadata
    }

    /// What is odd without being wrong; for a person, on stderr.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// The tensors' names, for a family adapter.
    pub fn tensor_index(&self) -> TensorIndex {
        TensorIndex {
            file: self.main.display().to_string(),
            names: self.tensors.keys().cloned().collect(),
        }
    }

    pub(super) fn map_of(&self, name: &str) -> Option<(&Arc<Mmap>, &TensorEntry)> {
        self.tensors.get(name).map(|(file, entry)| (&self.files[*file].1, entry))
    }
}
