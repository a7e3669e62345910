//! Region `gemm` where ranks divide K: the FP32 sums of this rank's columns.
//!
//! # Numerics
//! The columns hold whole segments of the K of one device (or, where K has no segments to divide,
//! count as one): each is summed in 16 lanes ([`super::lanes`]), segments are added as a binary tree.
//! Nothing is rounded; the collective adds the ranks' sums as the upper part of the same tree. Packed
//! weights are unpacked first, as for the whole product.

use super::isa::multiversion;
use super::lanes::{Widen, dot};
use super::rows::{Scatter, for_each_row, for_ranges, items_per_task};
use crate::backend::cpu::Isa;
use crate::tensor::{Int4, Storage, Weight, round_bf16};
use crate::units::mutant;

/// Most segments of a reduction.
const MAX_LEVELS: usize = 4;

/// Y = X·Wᵀ over part of K: rows of `x` (`tokens × k`) against rows of `weight` (`n × k`), into `out`
/// (`tokens × n`).
pub(super) fn gemm_part(isa: Isa, x: &[f32], weight: &Weight, segments: usize, out: &mut [f32]) {
    let k = weight.cols;
    let segments = if mutant!("gemm_part_in_one_segment") { 1 } else { segments };
    for_each_row(out, weight.rows, |token, out| {
        let x = &x[token * k..][..k];
        match &weight.storage {
            Storage::Bf16(w) => rows::<u16>(isa, x, w, segments, out),
            Storage::F32(w) => rows::<f32>(isa, x, w, segments, out),
            Storage::Int4(_) => unreachable!("packed weights have their own kernels"),
        }
    });
}

/// Rows of packed weights of one parallel task; they are unpacked once for all tokens.
const TASK_ROWS: usize = 16;

/// As [`gemm_part`], of packed weights; `round` rounds the values of their codes to BF16.
pub(super) fn packed_part(
    isa: Isa,
    x: &[f32],
    weight: &Int4,
    segments: usize,
    round: bool,
    out: &mut [f32],
) {
    let (n, k) = (weight.shape.rows(), weight.shape.cols());
    let tokens = x.len() / k;
    let scatter = Scatter::new(out, n);
    for_ranges(n.div_ceil(TASK_ROWS), items_per_task(TASK_ROWS * k * tokens), |tasks| {
        let (mut wide, mut row) = (Vec::new(), Vec::new());
        for task in tasks {
            let first = task * TASK_ROWS;
            wide.clear();
            for r in first..(first + TASK_ROWS).min(n) {
                weight.dequantise_row(r, &mut row);
                wide.extend(row.iter().map(|w| if round { round_bf16(*w) } else { *w }));
            }
            let mut values = [0.0; TASK_ROWS];
            let values = &mut values[..wide.len() / k];
            for (token, x) in x.chunks_exact(k).enumerate() {
                rows::<f32>(isa, x, &wide, segments, values);
                // SAFETY: tasks own disjoint column ranges of `out`.
                unsafe { scatter.write(token, first, values) };
            }
        }
    });
}

multiversion! {
    /// One token against every row.
    fn rows<W: Widen> = rows_body(x: &[f32], w: &[W], segments: usize, out: &mut [f32]);
}

#[inline(always)]
fn rows_body<W: Widen>(x: &[f32], w: &[W], segments: usize, out: &mut [f32]) {
    let length = x.len() / segments;
    for (out, w) in out.iter_mut().zip(w.chunks_exact(x.len())) {
        // After segment s, `level[i]` holds a finished subtree of 2ⁱ segments for every set bit i of
        // s + 1.
        let mut level = [0.0f32; MAX_LEVELS];
        for s in 0..segments {
            let mut subtree = dot(&w[s * length..][..length], &x[s * length..][..length]);
            let mut i = 0;
            while (s >> i) & 1 == 1 {
                subtree += level[i];
                i += 1;
            }
            level[i] = subtree;
        }
        *out = level[segments.trailing_zeros() as usize];
    }
}

#[cfg(test)]
mod tests {
    use super::super::gemm::gemm;
    use super::*;
    use crate::tensor::{Shared, add_as_tree, bf16_bits, segments};
    use crate::units::SplitMix64;

    /// Sums of the parts, added as a tree, are the bits of the whole product.
    #[test]
    fn parts_are_subtrees_of_the_whole() {
        let mut words = SplitMix64::new(3);
        let mut noise = |n: usize| -> Vec<f32> {
            (0..n).map(|_| (2.0 * words.next_unit() - 1.0) as f32).collect()
        };
        let (n, tokens) = (5, 3);
        for (k, ways) in [(512, 2), (512, 8), (1024, 4), (256, 4), (128, 2), (2048, 1)] {
            let elements = noise(n * k).into_iter().map(bf16_bits).collect();
            let weight =
                Weight { rows: n, cols: k, storage: Storage::Bf16(Shared::owned(elements)) };
            let x = noise(tokens * k);
            for isa in Isa::all() {
                let mut whole = vec![f32::NAN; tokens * n];
                gemm(isa, &x, &weight, &mut whole, false);
                let parts = (0..ways).map(|rank| {
                    let columns = rank * k / ways..(rank + 1) * k / ways;
                    let part = weight
                        .part(std::slice::from_ref(&(0..n)), std::slice::from_ref(&columns))
                        .unwrap();
                    let x: Vec<f32> =
                        x.chunks_exact(k).flat_map(|row| row[columns.clone()].to_vec()).collect();
                    let mut out = vec![f32::NAN; tokens * n];
                    gemm_part(isa, &x, &part, segments(k) / ways, &mut out);
                    out
                });
                let sum = add_as_tree(parts.collect(), |a: Vec<f32>, b| {
                    a.iter().zip(b).map(|(a, b)| a + b).collect()
                });
                let bits = |v: &[f32]| v.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
                assert_eq!(bits(&sum.unwrap()), bits(&whole), "{isa:?} k = {k} in {ways}");
            }
        }
    }
}
