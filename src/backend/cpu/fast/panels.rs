//! Weights as the `fast` kernels read them: panels of 16 rows, two k to a 32-bit word.

use super::simd::LANES;
use crate::backend::cpu::rows::for_each_chunk;
use crate::backend::{OpKind, Plan, WeightRef};
use crate::tensor::{Shared, Storage, Weight};
use memmap2::MmapMut;
use std::collections::HashMap;
use std::sync::Arc;

/// Elements of one pair of k of one panel.
pub(in crate::backend::cpu) const PAIR: usize = 2 * LANES;

/// Memory of one model's panels: zeroed, on huge pages where the system grants them.
#[derive(Debug)]
pub(in crate::backend::cpu) struct Arena {
    map: MmapMut,
    used: usize,
}

/// A BF16 matrix (`rows × cols`) in panels.
///
/// Panel p holds rows 16p … 16p + 15 as `[k / 2][row][2]`; rows and k beyond the matrix are zeros.
/// A pair of a panel is one cache line.
#[derive(Clone, Debug)]
pub(in crate::backend::cpu) struct Panels {
    pub(in crate::backend::cpu) rows: usize,
    pub(in crate::backend::cpu) cols: usize,
    arena: Arc<Arena>,
    start_bytes: usize,
}

impl Arena {
    /// Room for matrices of these `[rows, cols]`.
    ///
    /// # Errors
    /// When the system has no such memory.
    pub(in crate::backend::cpu) fn for_matrices(
        shapes: impl Iterator<Item = [usize; 2]>,
    ) -> std::io::Result<Arena> {
        let bytes: usize = shapes.map(size_bytes).sum();
        let map = MmapMut::map_anon(bytes.max(1))?;
        // A hint: without huge pages the same kernels run, somewhat slower.
        #[cfg(target_os = "linux")]
        let _ = map.advise(memmap2::Advice::HugePage);
        Ok(Arena { map, used: 0 })
    }

    /// Packs a row-major matrix, in parallel.
    ///
    /// # Panics
    /// When the arena was made for other matrices.
    pub(in crate::backend::cpu) fn pack(&mut self, elements: &Shared<u16>, cols: usize) -> Placed {
        let rows = elements.len() / cols;
        let size = size_bytes([rows, cols]);
        let start = self.used;
        self.used += size;
        let bytes = &mut self.map[start..start + size];
        // SAFETY: the map is page-aligned and every matrix takes a multiple of 64 bytes, so the slice
        // is aligned; any bits are a valid u16.
        let (head, panels, tail) = unsafe { bytes.align_to_mut::<u16>() };
        assert!(head.is_empty() && tail.is_empty());
        let pairs = cols.div_ceil(2);
        for_each_chunk(panels, pairs * PAIR, 1, |p, panel| {
            let first = p * LANES;
            for row in first..(first + LANES).min(rows) {
                let source = &elements[row * cols..][..cols];
                let (whole, odd) = source.as_chunks::<2>();
                let target =
                    panel.chunks_exact_mut(PAIR).map(|pair| &mut pair[2 * (row - first)..]);
                for (to, from) in target.zip(whole) {
                    to[..2].copy_from_slice(from);
                }
                if let [last] = odd {
                    panel[whole.len() * PAIR + 2 * (row - first)] = *last;
                }
            }
        });
        Placed { rows, cols, start_bytes: start }
    }
}

/// A packed matrix of an arena that is still being filled.
#[derive(Clone, Copy, Debug)]
pub(in crate::backend::cpu) struct Placed {
    rows: usize,
    cols: usize,
    start_bytes: usize,
}

impl Placed {
    /// The matrix, in its finished arena.
    pub(in crate::backend::cpu) fn within(self, arena: &Arc<Arena>) -> Panels {
        let Placed { rows, cols, start_bytes } = self;
        Panels { rows, cols, arena: arena.clone(), start_bytes }
    }
}

impl Panels {
    /// Panels, the last one padded.
    pub(in crate::backend::cpu) fn count(&self) -> usize {
        self.rows.div_ceil(LANES)
    }

    /// Pairs of k, the last one padded.
    pub(in crate::backend::cpu) fn pairs(&self) -> usize {
        self.cols.div_ceil(2)
    }

    /// Elements from panel `first` on.
    pub(in crate::backend::cpu) fn from(&self, first: usize) -> &[u16] {
        let len = self.count() * self.pairs() * PAIR;
        // SAFETY: `pack` wrote this range of the arena, which is kept and no longer changes; it is
        // aligned and any bits are a valid u16.
        let all = unsafe {
            let start = self.arena.map.as_ptr().add(self.start_bytes).cast::<u16>();
            std::slice::from_raw_parts(start, len)
        };
        &all[first * self.pairs() * PAIR..]
    }
}

/// The packed matrices of a plan.
#[derive(Debug, Default)]
pub(in crate::backend::cpu) struct Repacked {
    pub(in crate::backend::cpu) matrices: HashMap<WeightRef, Panels>,
    /// Matrices of experts, each expert's by itself, so that any of them starts a panel.
    pub(in crate::backend::cpu) experts: HashMap<WeightRef, Vec<Panels>>,
}

/// Moves the BF16 matrices that `plan` multiplies with from `matrices` into panels.
///
/// Pages of a mapped file that were read for it leave this process's memory as it goes, so that
/// weights are never held twice.
///
/// # Errors
/// When the system has no memory for them.
pub(in crate::backend::cpu) fn pack(
    plan: &Plan,
    matrices: &mut HashMap<WeightRef, Weight>,
) -> std::io::Result<Repacked> {
    let mut chosen: Vec<(WeightRef, Option<usize>, Shared<u16>, usize)> = Vec::new();
    for op in plan.all_ops() {
        let (weights, experts) = match op.kind {
            OpKind::Gemm { weight, .. } | OpKind::GemmF32 { weight, .. } => (vec![weight], None),
            OpKind::MoeExperts { experts, gate, up, down, .. } => {
                (vec![gate, up, down], Some(experts))
            }
            OpKind::GateUp { gate, up, .. } => (vec![gate, up], None),
            _ => continue,
        };
        for weight in weights {
            let Some(Weight { cols, storage: Storage::Bf16(elements), .. }) = matrices.get(&weight)
            else {
                continue;
            };
            match experts {
                None => chosen.push((weight, None, elements.clone(), *cols)),
                Some(experts) => {
                    let len = elements.len() / experts;
                    let slice = |e: usize| elements.slice(e * len..(e + 1) * len);
                    chosen.extend((0..experts).map(|e| (weight, Some(e), slice(e), *cols)));
                }
            }
            matrices.remove(&weight);
        }
    }
    let shapes = chosen.iter().map(|(_, _, elements, cols)| [elements.len() / cols, *cols]);
    let mut arena = Arena::for_matrices(shapes)?;
    let mut placed = Vec::with_capacity(chosen.len());
    for (i, (weight, expert, elements, cols)) in chosen.iter().enumerate() {
        if let Some((_, _, next, _)) = chosen.get(i + 1) {
            next.will_need();
        }
        placed.push((*weight, *expert, arena.pack(elements, *cols)));
        elements.release();
    }
    let arena = Arc::new(arena);
    let mut packed = Repacked::default();
    for (weight, expert, placed) in placed {
        let panels = placed.within(&arena);
        match expert {
            None => _ = packed.matrices.insert(weight, panels),
            Some(_) => packed.experts.entry(weight).or_default().push(panels),
        }
    }
    Ok(packed)
}

fn size_bytes([rows, cols]: [usize; 2]) -> usize {
    rows.div_ceil(LANES) * cols.div_ceil(2) * PAIR * 2
}
