//! Writing a capture: tensors as they come, the file under its name only when complete.

use super::{CaptureError, CaptureInfo, destination};
use crate::engine::manifest::Manifest;
use serde_json::{Map, Value, json};
use std::fs::File;
use std::io::{self, BufWriter, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

/// Metadata entry that says what the file is.
pub(super) const FORMAT_KEY: &str = "format";
pub(super) const FORMAT: &str = "assay capture";
/// Metadata entry that holds the manifest.
pub(super) const MANIFEST_KEY: &str = "manifest";
/// Metadata entry that holds the [`CaptureInfo`].
pub(super) const INFO_KEY: &str = "capture";

/// Writes a capture.
///
/// FP32 rows go to a file beside the final one as they come, so that logits of long prompts never
/// have to fit in memory; [`Writer::finish`] puts the header before them. That file has no name once
/// it is open, so that a process that is killed leaves nothing behind; what [`Writer::finish`] writes
/// has one until it gets its own, and is removed when that fails.
#[derive(Debug)]
pub(super) struct Writer {
    path: PathBuf,
    rows: Scratch,
    /// Tensors of 4-byte elements in the order of their data.
    arrays: Vec<Rows>,
    ids: Vec<(String, Vec<i64>)>,
}

/// A tensor that is being written.
#[derive(Debug)]
struct Rows {
    name: String,
    /// `F32` or `I32`.
    dtype: &'static str,
    shape: Vec<usize>,
    /// Values written so far.
    written: usize,
}

/// A file that is removed unless it was renamed.
#[derive(Debug)]
struct Scratch {
    path: PathBuf,
    file: BufWriter<File>,
}

impl Scratch {
    fn create(path: PathBuf) -> io::Result<Scratch> {
        let file = File::options().read(true).write(true).create_new(true).open(&path)?;
        Ok(Scratch { path, file: BufWriter::with_capacity(1 << 20, file) })
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // Gone already when it was renamed.
        let _ = std::fs::remove_file(&self.path);
    }
}

impl Writer {
    /// A writer for `path`, as [`destination()`] allows; its folder must exist.
    pub(super) fn create(path: &Path) -> Result<Writer, CaptureError> {
        let path = destination(path)?;
        let rows = Scratch::create(beside(&path)).map_err(|source| io_error(&path, source))?;
        // Where a system keeps the name of an open file, dropping removes it.
        let _ = std::fs::remove_file(&rows.path);
        Ok(Writer { path, rows, arrays: Vec::new(), ids: Vec::new() })
    }

    /// Begins an FP32 tensor; exactly its values follow.
    pub(super) fn begin(&mut self, name: String, shape: Vec<usize>) {
        debug_assert!(self.complete());
        self.arrays.push(Rows { name, dtype: "F32", shape, written: 0 });
    }

    /// A whole I32 tensor from numbers that are ids.
    pub(super) fn indices(
        &mut self,
        name: String,
        shape: Vec<usize>,
        ids: &[f32],
    ) -> Result<(), CaptureError> {
        debug_assert!(self.complete());
        self.arrays.push(Rows { name, dtype: "I32", shape, written: ids.len() });
        for id in ids {
            self.put((*id as i32).to_le_bytes())?;
        }
        Ok(())
    }

    fn put(&mut self, bytes: [u8; 4]) -> Result<(), CaptureError> {
        self.rows.file.write_all(&bytes).map_err(|source| io_error(&self.path, source))
    }

    /// The next values of the tensor begun last.
    pub(super) fn append(&mut self, values: &[f32]) -> Result<(), CaptureError> {
        if let Some(rows) = self.arrays.last_mut() {
            rows.written += values.len();
        }
        for value in values {
            self.put(value.to_le_bytes())?;
        }
        Ok(())
    }

    /// A whole I64 vector.
    pub(super) fn ids(&mut self, name: String, ids: impl IntoIterator<Item = u32>) {
        self.ids.push((name, ids.into_iter().map(i64::from).collect()));
    }

    fn complete(&self) -> bool {
        self.arrays.iter().all(|rows| rows.shape.iter().product::<usize>() == rows.written)
    }

    /// Writes the file and gives it its name; returns its size in bytes.
    pub(super) fn finish(
        mut self,
        info: &CaptureInfo,
        manifest: &Manifest,
    ) -> Result<u64, CaptureError> {
        let path = self.path.clone();
        self.write(info, manifest).map_err(|source| io_error(&path, source))
    }

    fn write(&mut self, info: &CaptureInfo, manifest: &Manifest) -> io::Result<u64> {
        debug_assert!(self.complete());
        let header = self.header(info, manifest).to_string();
        // Spaces bring the data to a multiple of eight bytes.
        let padded = header.len().next_multiple_of(8);
        let mut out = Scratch::create(beside(&self.path))?;
        out.file.write_all(&(padded as u64).to_le_bytes())?;
        out.file.write_all(header.as_bytes())?;
        out.file.write_all(&b"       "[..padded - header.len()])?;
        for id in self.ids.iter().flat_map(|(_, ids)| ids) {
            out.file.write_all(&id.to_le_bytes())?;
        }
        self.rows.file.flush()?;
        let rows = self.rows.file.get_mut();
        rows.seek(SeekFrom::Start(0))?;
        io::copy(rows, &mut out.file)?;
        out.file.flush()?;
        let file = out.file.get_ref();
        file.sync_all()?;
        let size = file.metadata()?.len();
        std::fs::rename(&out.path, &self.path)?;
        Ok(size)
    }

    /// The safetensors header. I64 vectors come first, so that every element is aligned.
    fn header(&self, info: &CaptureInfo, manifest: &Manifest) -> Value {
        let text = |value: &Value| Value::from(value.to_string());
        let mut header = Map::new();
        header.insert(
            "__metadata__".into(),
            json!({
                FORMAT_KEY: FORMAT,
                INFO_KEY: text(&serde_json::to_value(info).unwrap_or_default()),
                MANIFEST_KEY: text(&manifest.to_json()),
            }),
        );
        let mut start = 0;
        let mut entry = |name: &str, dtype: &str, shape: &[usize], size_bytes: usize| {
            let end = start + size_bytes;
            let offsets = [std::mem::replace(&mut start, end), end];
            header.insert(
                name.into(),
                json!({ "dtype": dtype, "shape": shape, "data_offsets": offsets }),
            );
        };
        for (name, ids) in &self.ids {
            entry(name, "I64", &[ids.len()], ids.len() * 8);
        }
        for rows in &self.arrays {
            entry(&rows.name, rows.dtype, &rows.shape, rows.written * 4);
        }
        header.into()
    }
}

/// A name in the same folder, so that renaming is atomic, that nothing has: short, so that it is a
/// name wherever the capture's is one.
fn beside(path: &Path) -> PathBuf {
    static MADE: AtomicUsize = AtomicUsize::new(0);
    let (process, number) = (std::process::id(), MADE.fetch_add(1, Ordering::Relaxed));
    path.with_file_name(format!(".capture.{process}.{number}"))
}

fn io_error(path: &Path, source: io::Error) -> CaptureError {
    CaptureError::Io { path: path.to_owned(), source }
}
