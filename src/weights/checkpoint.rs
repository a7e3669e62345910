//! An opened checkpoint: every tensor indexed and checked, no element read yet.

use super::header::TensorEntry;
use super::int4::LayoutRecord;
use super::int4::{Attached, Sidecar, attach};
use super::{CheckpointError, shards};
use crate::descriptor::TensorIndex;
use crate::units::Canonical;
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
    files: Vec<OpenFile>,
    tensors: BTreeMap<String, (usize, TensorEntry)>,
    metadata: BTreeMap<String, String>,
    warnings: Vec<String>,
    attached: Option<Arc<Attached>>,
}

/// A mapped file and what its header says beside the tensors.
#[derive(Clone, Debug)]
struct OpenFile {
    path: PathBuf,
    map: Arc<Mmap>,
    metadata: BTreeMap<String, String>,
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
            metadata.extend(file.header.metadata.clone());
            let (path, map) = (file.path, file.map);
            files.push(OpenFile { path, map, metadata: file.header.metadata });
        }
        let attached = match path.as_ref().is_dir() {
            true => attach::read(path.as_ref())?.map(Arc::new),
            false => None,
        };
        let (main, warnings) = (opened.main, opened.warnings);
        let checkpoint = Checkpoint { main, files, tensors, metadata, warnings, attached };
        match &checkpoint.attached {
            Some(attached) => attached.check_files(&checkpoint)?,
            None => attach::check_alone(&checkpoint, path.as_ref())?,
        }
        Ok(checkpoint)
    }

    /// The index of a sharded checkpoint, or the only file of a single one.
    pub fn main_file(&self) -> &Path {
        &self.main
    }

    /// The safetensors files.
    pub fn files(&self) -> impl Iterator<Item = &Path> {
        self.files.iter().map(|file| file.path.as_path())
    }

    /// Path, size and header metadata of every file.
    pub(super) fn file_facts(
        &self,
    ) -> impl Iterator<Item = (&Path, u64, &BTreeMap<String, String>)> {
        self.files.iter().map(|f| (f.path.as_path(), f.map.len() as u64, &f.metadata))
    }

    /// What lies in a folder of packed weights, if this is one.
    pub fn sidecar(&self) -> Option<&Sidecar> {
        self.attached.as_ref().map(|attached| &attached.sidecar)
    }

    pub(super) fn attached(&self) -> Option<&Attached> {
        self.attached.as_deref()
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
        self.tensors.get(name).map(|(file, _)| self.files[*file].path.as_path())
    }

    /// The stored bytes of a tensor.
    pub fn bytes(&self, name: &str) -> Option<&[u8]> {
        let (file, entry) = self.tensors.get(name)?;
        Some(&self.files[*file].map[entry.start_bytes..entry.start_bytes + entry.size_bytes])
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
        let file = self.main.display().to_string();
        let names = match self.sidecar() {
            // The names that the model had before some of its weights were packed.
            Some(sidecar) => sidecar.source.tensors.iter().cloned().collect(),
            None => self.tensors.keys().cloned().collect(),
        };
        TensorIndex { file, names }
    }

    /// Lets the system take back the memory of a tensor that was read; it is read again from the
    /// file where it is needed again.
    pub(super) fn forget(&self, name: &str) {
        let Some((map, entry)) = self.map_of(name) else { return };
        #[cfg(unix)]
        {
            const PAGE_BYTES: usize = 4096;
            let start = entry.start_bytes.next_multiple_of(PAGE_BYTES);
            let end = (entry.start_bytes + entry.size_bytes) / PAGE_BYTES * PAGE_BYTES;
            if start < end {
                // SAFETY: the map is shared, read-only and backed by a file: dropped pages come
                // back with the same content. A hint only: failing costs memory, nothing else.
                let _ = unsafe {
                    map.unchecked_advise_range(
                        memmap2::UncheckedAdvice::DontNeed,
                        start,
                        end - start,
                    )
                };
            }
        }
        #[cfg(not(unix))]
        let _ = (map, entry);
    }

    /// How tensors are spread over files: of packed weights, how those of their source were.
    pub fn layout(&self) -> LayoutRecord {
        if let Some(sidecar) = self.sidecar() {
            return sidecar.source.layout.clone();
        }
        let name =
            |path: &Path| path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let mut counts: BTreeMap<String, usize> = self.files().map(|f| (name(f), 0)).collect();
        let mut places = BTreeMap::new();
        for (tensor, entry) in self.tensors() {
            let file = self.file_of(tensor).map(name).unwrap_or_default();
            *counts.entry(file.clone()).or_default() += 1;
            let place = Canonical::object([
                ("file", Canonical::from(file)),
                ("dtype", entry.dtype.to_string().into()),
                ("shape", Canonical::list(entry.shape.iter().copied())),
            ]);
            places.insert(tensor.to_owned(), place);
        }
        LayoutRecord {
            files: counts.into_iter().collect(),
            tensor_files_digest: Canonical::Object(places).digest().to_string(),
        }
    }

    pub(super) fn map_of(&self, name: &str) -> Option<(&Arc<Mmap>, &TensorEntry)> {
        self.tensors.get(name).map(|(file, entry)| (&self.files[*file].map, entry))
    }
}
