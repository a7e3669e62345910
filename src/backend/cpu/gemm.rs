//! Regions `gemm` and `gemm_f32`: Y = X·Wᵀ.
//!
//! # Numerics
//! The reduction dimension K is cut into S equal segments ([`segments`]); each is summed in 16
//! lanes ([`super::lanes`]), segments are added as a binary tree, and `gemm` rounds once to BF16
//! where the policy rounds. A row of Y therefore depends on its own row of X alone: tiles of rows
//! and tokens share loads, never sums.

use super::isa::multiversion;
use super::lanes::{LANES, Lanes, Widen, dot, halve};
use super::rows::{Scatter, for_each_chunk, for_ranges, items_per_task};
use crate::backend::cpu::Isa;
use crate::tensor::{Storage, Weight, round_bf16, segments};
use crate::units::mutant;

/// Weight rows of one parallel task, when several tokens share the widened rows.
const TASK_ROWS: usize = 16;
/// Least weight bytes of one parallel task of a single token.
const TASK_BYTES: usize = 64 << 10;

/// Y = X·Wᵀ, rows of `x` (`tokens × k`) against rows of `weight` (`n × k`), into `out`
/// (`tokens × n`); `round` rounds every result to BF16.
pub(super) fn gemm(isa: Isa, x: &[f32], weight: &Weight, out: &mut [f32], round: bool) {
    match &weight.storage {
        Storage::Bf16(w) => gemm_typed::<u16>(isa, x, w, weight.cols, out, round),
        Storage::F32(w) => gemm_typed::<f32>(isa, x, w, weight.cols, out, round),
        Storage::Int4(_) => unreachable!("packed weights have their own kernels"),
    }
}

fn gemm_typed<W: Widen>(isa: Isa, x: &[f32], w: &[W], k: usize, out: &mut [f32], round: bool) {
    let n = w.len() / k;
    let tokens = x.len() / k;
    debug_assert_eq!(out.len(), tokens * n);
    if tokens == 1 {
        let rows = (TASK_BYTES / (k * size_of::<W>())).max(1).next_multiple_of(4);
        for_each_chunk(out, rows, 1, |i, out| {
            let start = i * rows;
            vector(isa, x, &w[start * k..(start + out.len()) * k], k, out, round);
        });
        return;
    }
    let scatter = Scatter::new(out, n);
    let least = items_per_task(TASK_ROWS * k * tokens);
    for_ranges(n.div_ceil(TASK_ROWS), least, |range| {
        let (mut wide, mut tile) = (Vec::new(), Vec::new());
        for i in range {
            let w = &w[i * TASK_ROWS * k..n.min((i + 1) * TASK_ROWS) * k];
            let rows = w.len() / k;
            wide.clear();
            wide.extend(w.iter().map(|w| w.widen()));
            tile.resize(tokens * rows, 0.0);
            matrix(isa, x, &wide, k, &mut tile, round);
            for (token, values) in tile.chunks_exact(rows).enumerate() {
                // SAFETY: tasks own disjoint column ranges of `out`.
                unsafe { scatter.write(token, i * TASK_ROWS, values) };
            }
        }
    });
}

multiversion! {
    /// One token against some rows.
    pub(super) fn vector<W: Widen> = vector_body(x: &[f32], w: &[W], k: usize, out: &mut [f32], round: bool);
    /// Several tokens against some widened rows; `out` is `tokens × rows`.
    pub(super) fn matrix = matrix_body(x: &[f32], w: &[f32], k: usize, out: &mut [f32], round: bool);
}

#[inline(always)]
fn finish(value: f32, round: bool) -> f32 {
    if round && !mutant!("gemm_lost_rounding") { round_bf16(value) } else { value }
}

#[inline(always)]
fn vector_body<W: Widen>(x: &[f32], w: &[W], k: usize, out: &mut [f32], round: bool) {
    let (quads, rest) = out.as_chunks_mut::<4>();
    for (quad, w) in quads.iter_mut().zip(w.chunks_exact(4 * k)) {
        let [results] = tile::<W, 4, 1>(x, w, k);
        *quad = results.map(|v| finish(v, round));
    }
    let done = quads.len() * 4;
    for (out, w) in rest.iter_mut().zip(w[done * k..].chunks_exact(k)) {
        *out = finish(tile::<W, 1, 1>(x, w, k)[0][0], round);
    }
}

#[inline(always)]
fn matrix_body(x: &[f32], w: &[f32], k: usize, out: &mut [f32], round: bool) {
    let rows = w.len() / k;
    let tokens = x.len() / k;
    let mut token = 0;
    while token < tokens {
        let pair = token + 1 < tokens;
        let x = &x[token * k..];
        let mut row = 0;
        while row < rows {
            let w = &w[row * k..];
            if pair && row + 1 < rows {
                let results = tile::<f32, 2, 2>(x, w, k);
                for (t, results) in results.iter().enumerate() {
                    for (r, v) in results.iter().enumerate() {
                        out[(token + t) * rows + row + r] = finish(*v, round);
                    }
                }
                row += 2;
            } else {
                out[token * rows + row] = finish(tile::<f32, 1, 1>(x, w, k)[0][0], round);
                if pair {
                    let v = tile::<f32, 1, 1>(&x[k..], w, k)[0][0];
                    out[(token + 1) * rows + row] = finish(v, round);
                }
                row += 1;
            }
        }
        token += if pair { 2 } else { 1 };
    }
}

/// `R` weight rows against `T` tokens; result `[token][row]`, unrounded.
#[inline(always)]
fn tile<W: Widen, const R: usize, const T: usize>(x: &[f32], w: &[W], k: usize) -> [[f32; R]; T] {
    let segments = if T > 1 && mutant!("gemm_order_by_batch") { 1 } else { segments(k) };
    let length = k / segments;
    if segments == 1 {
        return tile_segment::<W, R, T>(x, w, k, 0, length);
    }
    // Partial sums of the binary tree: after segment s, `level[i]` holds a finished subtree of 2ⁱ
    // segments for every set bit i of s + 1.
    let mut level = [[[0.0f32; R]; T]; 4];
    for s in 0..segments {
        let mut subtree = tile_segment::<W, R, T>(x, w, k, s * length, length);
        if s + 1 == segments && mutant!("gemm_last_segment_lost") {
            subtree = [[0.0; R]; T];
        }
        let mut i = 0;
        while (s >> i) & 1 == 1 {
            for t in 0..T {
                for r in 0..R {
                    subtree[t][r] += level[i][t][r];
                }
            }
            i += 1;
        }
        level[i] = subtree;
    }
    level[segments.trailing_zeros() as usize]
}

/// Sums of one segment `[start, start + length)` of K.
#[inline(always)]
fn tile_segment<W: Widen, const R: usize, const T: usize>(
    x: &[f32],
    w: &[W],
    k: usize,
    start: usize,
    length: usize,
) -> [[f32; R]; T] {
    if !length.is_multiple_of(LANES) {
        // Ragged: only ever the single segment of an odd K.
        let mut out = [[0.0; R]; T];
        for (t, out) in out.iter_mut().enumerate() {
            for (r, out) in out.iter_mut().enumerate() {
                *out = dot(&w[r * k + start..][..length], &x[t * k + start..][..length]);
            }
        }
        return out;
    }
    let ws: [&[[W; LANES]]; R] =
        std::array::from_fn(|r| w[r * k + start..][..length].as_chunks::<LANES>().0);
    let xs: [&[Lanes]; T] =
        std::array::from_fn(|t| x[t * k + start..][..length].as_chunks::<LANES>().0);
    let mut lanes = [[[0.0f32; LANES]; R]; T];
    for i in 0..length / LANES {
        for r in 0..R {
            let w = ws[r][i].map(Widen::widen);
            for t in 0..T {
                for j in 0..LANES {
                    lanes[t][r][j] += w[j] * xs[t][i][j];
                }
            }
        }
    }
    lanes.map(|rows| rows.map(halve))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tensor::{Shared, bf16_bits};

    fn noise(n: usize, seed: u32) -> Vec<f32> {
        let mut state = seed;
        (0..n)
            .map(|_| {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                round_bf16((state >> 8) as f32 / 8_388_608.0 - 1.0)
            })
            .collect()
    }

    /// The definition, in the plainest code: segments, lanes, halving, tree.
    fn oracle(x: &[f32], w: &[f32]) -> f32 {
        let k = x.len();
        let s = segments(k);
        let mut sums: Vec<f32> = (0..s)
            .map(|i| dot(&x[i * k / s..(i + 1) * k / s], &w[i * k / s..(i + 1) * k / s]))
            .collect();
        while sums.len() > 1 {
            sums = sums.chunks(2).map(|p| p[0] + p[1]).collect();
        }
        sums[0]
    }

    #[test]
    fn every_row_has_the_bits_of_the_definition_on_every_instruction_set() {
        for k in [5, 16, 100, 128, 512, 576] {
            for n in [1, 3, 4, 17, 33] {
                let w = noise(n * k, 7);
                let weight = Weight {
                    rows: n,
                    cols: k,
                    storage: Storage::Bf16(Shared::owned(
                        w.iter().map(|v| bf16_bits(*v)).collect(),
                    )),
                };
                for tokens in [1, 2, 3, 8] {
                    let x = noise(tokens * k, 11);
                    for isa in Isa::all() {
                        let mut out = vec![f32::NAN; tokens * n];
                        gemm(isa, &x, &weight, &mut out, false);
                        for t in 0..tokens {
                            for r in 0..n {
                                let expected = oracle(&x[t * k..][..k], &w[r * k..][..k]);
                                assert_eq!(
                                    out[t * n + r].to_bits(),
                                    expected.to_bits(),
                                    "{isa:?} k={k} n={n} tokens={tokens}"
                                );
                            }
                        }
                    }
                }
            }
        }
    }
}
