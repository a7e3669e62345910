//! Weights as the `fast` kernels read them: panels of 16 rows, two k to a 32-bit word.

use super::simd::LANES;
#[cfg(target_arch = "x86_64")]
use super::x86::pack_rows;
use crate::backend::cpu::arena::{Arena, Piece, Place};
use crate::backend::cpu::rows::for_each_chunk;
use crate::backend::{OpKind, Plan, WeightRef};
use crate::tensor::{Shared, Storage, Weight};
use std::collections::HashMap;
use std::sync::Arc;

/// Elements of one pair of k of one panel.
pub(in crate::backend::cpu) const PAIR: usize = 2 * LANES;

/// Bytes of a mapped matrix that are packed at a time and then given back.
const SLICE_BYTES: usize = 8 << 20;

/// A BF16 matrix (`rows × cols`) in panels.
///
/// Panel p holds rows 16p … 16p + 15 as `[k / 2][row][2]`; rows and k beyond the matrix are zeros.
/// A pair of a panel is one cache line.
#[derive(Clone, Debug)]
pub(in crate::backend::cpu) struct Panels {
    pub(in crate::backend::cpu) rows: usize,
    pub(in crate::backend::cpu) cols: usize,
    elements: Piece,
}

/// A packed matrix of an arena that is still being filled.
#[derive(Clone, Copy, Debug)]
pub(super) struct Placed {
    rows: usize,
    cols: usize,
    place: Place,
}

impl Placed {
    /// The matrix, in its finished arena.
    pub(super) fn within(self, arena: &Arc<Arena>) -> Panels {
        let Placed { rows, cols, place } = self;
        Panels { rows, cols, elements: place.within(arena) }
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

    /// Bytes of a panel.
    pub(in crate::backend::cpu) fn panel_bytes(&self) -> usize {
        self.pairs() * PAIR * size_of::<u16>()
    }

    /// Elements from panel `first` on.
    #[inline(always)]
    pub(in crate::backend::cpu) fn from(&self, first: usize) -> &[u16] {
        &self.elements[first * self.pairs() * PAIR..]
    }
}

/// Elements of a matrix in panels.
pub(super) fn len([rows, cols]: [usize; 2]) -> usize {
    rows.div_ceil(LANES) * cols.div_ceil(2) * PAIR
}

/// Packs a row-major matrix, in parallel. Pages of a mapped file that were read for it leave this
/// process's memory as it goes, so that weights are never held twice.
///
/// # Panics
/// When the arena was made for other matrices.
pub(super) fn pack_matrix(arena: &mut Arena, elements: &Shared<u16>, cols: usize) -> Placed {
    let rows = elements.len() / cols;
    let panel_len = cols.div_ceil(2) * PAIR;
    let (place, panels) = arena.take(len([rows, cols]));
    let at_once = (SLICE_BYTES / (panel_len * size_of::<u16>())).max(1);
    for (i, panels) in panels.chunks_mut(at_once * panel_len).enumerate() {
        let first = i * at_once * LANES;
        let slice = elements.slice(first * cols..(first + at_once * LANES).min(rows) * cols);
        for_each_chunk(panels, panel_len, 1, |p, panel| {
            let first = p * LANES * cols;
            pack_panel(&slice[first..(first + LANES * cols).min(slice.len())], cols, panel);
        });
        slice.release();
    }
    Placed { rows, cols, place }
}

/// Packs up to 16 rows.
fn pack_panel(rows: &[u16], cols: usize, panel: &mut [u16]) {
    #[cfg(target_arch = "x86_64")]
    let done = if rows.len() == LANES * cols && is_x86_feature_detected!("avx2") {
        // SAFETY: the machine has AVX2.
        unsafe { pack_rows(rows, cols, panel) }
    } else {
        0
    };
    #[cfg(not(target_arch = "x86_64"))]
    let done = 0;
    for (row, source) in rows.chunks_exact(cols).enumerate() {
        let (whole, odd) = source.as_chunks::<2>();
        let left = panel[done * PAIR..].chunks_exact_mut(PAIR).map(|pair| &mut pair[2 * row..]);
        for (to, from) in left.zip(&whole[done..]) {
            to[..2].copy_from_slice(from);
        }
        if let [last] = odd {
            panel[whole.len() * PAIR + 2 * row] = *last;
        }
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
            OpKind::Gemm { weight, .. }
            | OpKind::GemmF32 { weight, .. }
            | OpKind::GemmPart { weight, .. } => (vec![weight], None),
            OpKind::MoeExperts { experts, gate, up, down, .. } => {
                (vec![gate, up, down], Some(experts.count))
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
    let lens = chosen.iter().map(|(_, _, elements, cols)| len([elements.len() / cols, *cols]));
    let mut arena = Arena::for_pieces(lens)?;
    let mut placed = Vec::with_capacity(chosen.len());
    for (i, (weight, expert, elements, cols)) in chosen.iter().enumerate() {
        if let Some((_, _, next, _)) = chosen.get(i + 1) {
            next.will_need();
        }
        placed.push((*weight, *expert, pack_matrix(&mut arena, elements, *cols)));
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
