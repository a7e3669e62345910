//! The portable kernel, and the choice of one.
//!
//! # Numerics
//! y = Σ_g f32(I_g) · (s_g · a_g), g ascending, multiply and add separate, from +0; I_g = Σ q·x over
//! the group in 32-bit integers, exact: 15 · 32767 · 128 < 2³¹. Exact sums have no order, so tiles of
//! rows and tokens, and the width of registers, change no bit.

use super::activations::Row;
use super::panel::{BLOCK, ROWS, Tile, WORDS};
use crate::backend::cpu::Isa;
#[cfg(target_arch = "x86_64")]
use crate::backend::cpu::Level;
use crate::tensor::bf16_from_bits;

/// Rows of X that share unpacked weights.
pub(super) const TOKENS: usize = 4;

/// Results of two tiles (16 weight rows) for one token.
pub(super) type Results = [f32; 2 * ROWS];

/// One or two neighbouring tiles against up to [`TOKENS`] tokens. Of one tile the second half of the
/// results is unspecified.
pub(super) fn tiles(
    isa: Isa,
    w: [Option<Tile<'_>>; 2],
    x: &[Row<'_>],
    group: usize,
) -> [Results; TOKENS] {
    let mut results = [[0.0; 2 * ROWS]; TOKENS];
    #[cfg(target_arch = "x86_64")]
    match (w, isa.level()) {
        (_, Level::Portable) | ([None, _], _) => {}
        ([Some(a), Some(b)], Level::Avx512) => {
            // SAFETY: an `Isa` exists only for an instruction set that this machine has.
            unsafe { super::x86::pair_avx512(a, b, x, group, &mut results) };
            return results;
        }
        ([Some(a), Some(b)], Level::Avx2) => {
            // SAFETY: as above.
            unsafe { super::x86::pair_avx2(a, b, x, group, &mut results) };
            return results;
        }
        ([Some(a), None], Level::Avx2 | Level::Avx512) => {
            // SAFETY: as above; AVX-512 machines have AVX2.
            unsafe { super::x86::single_avx2(a, x, group, &mut results) };
            return results;
        }
    }
    let _ = isa;
    for (t, x) in x.iter().enumerate() {
        for (half, tile) in w.into_iter().enumerate() {
            if let Some(tile) = tile {
                results[t][half * ROWS..][..ROWS].copy_from_slice(&portable(tile, x, group));
            }
        }
    }
    results
}

/// One tile against one token.
pub(super) fn portable(tile: Tile<'_>, x: &Row<'_>, group: usize) -> [f32; ROWS] {
    let mut sums = [0.0f32; ROWS];
    let groups = tile.codes.chunks_exact(group / BLOCK * WORDS).zip(x.values.chunks_exact(group));
    for (g, (codes, values)) in groups.enumerate() {
        let mut whole = [x.bias[g]; ROWS];
        let blocks = codes.as_chunks::<WORDS>().0.iter().zip(values.as_chunks::<BLOCK>().0);
        for (words, x) in blocks {
            for j in 0..BLOCK / 2 {
                let (even, odd) = (i32::from(x[2 * j]), i32::from(x[2 * j + 1]));
                for r in 0..ROWS {
                    let code = |word: u16| i32::from((word >> (4 * j)) & 15);
                    whole[r] += code(words[2 * r]) * even + code(words[2 * r + 1]) * odd;
                }
            }
        }
        for r in 0..ROWS {
            let scale = bf16_from_bits(tile.scales[g * ROWS + r]) * x.scales[g];
            sums[r] += whole[r] as f32 * scale;
        }
    }
    sums
}
