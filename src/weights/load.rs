//! From located rows to weights in memory.

use super::identity;
use super::resolve::{Located, resolve};
use super::set::Logical;
use super::{Checkpoint, CheckpointError, WeightSet};
use crate::descriptor::Descriptor;
use crate::tensor::{DType, Shared, Storage, Weight};
use rayon::prelude::*;
use std::fmt;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

/// Told how many bytes of how many are done; called from several threads.
pub type Progress<'a> = &'a (dyn Fn(u64, u64) + Sync);

/// How to load.
#[derive(Clone, Copy)]
pub struct LoadOptions<'a> {
    /// Bring mapped weights into the page cache now, in parallel, instead of on first use.
    pub read_ahead: bool,
    /// Digest every byte of content, not only the sample.
    pub full_digest: bool,
    pub progress: Option<Progress<'a>>,
}

impl Default for LoadOptions<'_> {
    fn default() -> Self {
        LoadOptions { read_ahead: true, full_digest: false, progress: None }
    }
}

impl fmt::Debug for LoadOptions<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LoadOptions")
            .field("read_ahead", &self.read_ahead)
            .field("full_digest", &self.full_digest)
            .finish_non_exhaustive()
    }
}

impl Checkpoint {
    /// Loads the weights of `descriptor` with default options.
    ///
    /// # Errors
    /// As [`Checkpoint::load_with`].
    pub fn load(&self, descriptor: &Descriptor) -> Result<WeightSet, CheckpointError> {
        self.load_with(descriptor, &LoadOptions::default())
    }

    /// Loads the weights of `descriptor`.
    ///
    /// BF16 and F32 weights whose rows lie together and aligned are used in place, in the mapped
    /// file; others are copied. F16 is widened to F32, exactly. Memory beyond the map is only what
    /// copied weights need.
    ///
    /// # Errors
    /// A contradiction between files and descriptor, found before any weight is allocated.
    pub fn load_with(
        &self,
        descriptor: &Descriptor,
        options: &LoadOptions<'_>,
    ) -> Result<WeightSet, CheckpointError> {
        let located = resolve(self, descriptor)?;
        let total = located.iter().flat_map(|l| &l.parts).map(|p| p.bytes.len() as u64).sum();
        let done = AtomicU64::new(0);
        let report = |bytes: u64| {
            let now = done.fetch_add(bytes, Ordering::Relaxed) + bytes;
            if let Some(progress) = options.progress {
                progress(now, total);
            }
        };
        let weights = located
            .par_iter()
            .map(|l| {
                let weight = self.materialise(l, options.read_ahead, &report);
                ((l.role, l.layer), weight)
            })
            .collect();
        let ties = descriptor.roles.iter().filter_map(|r| Some((r.name, r.tied_to?))).collect();
        let mut logical = Logical { weights, ties };
        if let Some(attached) = self.attached() {
            let artifact = attached.load(self, &mut logical)?;
            return Ok(WeightSet::packed(logical, attached.source()?, artifact));
        }
        let source = identity::checkpoint_source(&logical, options.full_digest);
        Ok(WeightSet::new(logical, source))
    }

    fn materialise(&self, located: &Located, read_ahead: bool, report: &dyn Fn(u64)) -> Weight {
        let Located { rows, cols, dtype, ref parts, .. } = *located;
        let storage = match (dtype, parts.as_slice()) {
            (DType::BF16, [part]) => self.in_place(part, located.elements()).map(Storage::Bf16),
            (DType::F32, [part]) => self.in_place(part, located.elements()).map(Storage::F32),
            _ => None,
        };
        let size_bytes: u64 = parts.iter().map(|p| p.bytes.len() as u64).sum();
        let storage = match storage {
            Some(storage) => {
                if read_ahead {
                    self.touch(&parts[0].tensor, parts[0].bytes.clone());
                }
                storage
            }
            None => self.copy(located),
        };
        report(size_bytes);
        Weight { rows, cols, storage }
    }

    fn in_place<T: crate::tensor::Element>(
        &self,
        part: &super::resolve::Part,
        elements: usize,
    ) -> Option<Shared<T>> {
        let (map, entry) = self.map_of(&part.tensor)?;
        Shared::mapped(map.clone(), entry.start_bytes + part.bytes.start, elements)
    }

    fn copy(&self, located: &Located) -> Storage {
        let chunks = located.parts.iter().map(|part| {
            let stored = self.bytes(&part.tensor).unwrap_or_default();
            &stored[part.bytes.clone()]
        });
        let count = located.elements();
        match located.dtype {
            DType::BF16 => Storage::Bf16(Shared::owned(gather(chunks, count, u16::from_le_bytes))),
            DType::F16 => Storage::F32(Shared::owned(gather(chunks, count, |b| {
                half::f16::from_le_bytes(b).to_f32()
            }))),
            _ => Storage::F32(Shared::owned(gather(chunks, count, f32::from_le_bytes))),
        }
    }

    /// Reads a byte of every page, so that the system fetches them now and from several threads.
    fn touch(&self, tensor: &str, bytes: Range<usize>) {
        const CHUNK_BYTES: usize = 8 << 20;
        const PAGE_BYTES: usize = 4096;
        let Some((map, entry)) = self.map_of(tensor) else { return };
        let start = entry.start_bytes + bytes.start;
        let range = start..start + bytes.len();
        range.clone().into_par_iter().step_by(CHUNK_BYTES).for_each(|from| {
            let to = (from + CHUNK_BYTES).min(range.end);
            // A hint only: failing to give it costs time, nothing else.
            #[cfg(unix)]
            let _ = map.advise_range(memmap2::Advice::WillNeed, from, to - from);
            for page in (from..to).step_by(PAGE_BYTES) {
                std::hint::black_box(map[page]);
            }
        });
    }
}

/// The elements of several byte chunks, one after the other.
fn gather<'a, T, const N: usize>(
    chunks: impl Iterator<Item = &'a [u8]>,
    count: usize,
    element: impl Fn([u8; N]) -> T,
) -> Vec<T> {
    let mut out = Vec::with_capacity(count);
    for chunk in chunks {
        out.extend(chunk.as_chunks::<N>().0.iter().map(|b| element(*b)));
    }
    out
}
