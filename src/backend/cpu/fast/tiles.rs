//! Products of several tokens: tiles of registers, and blocks that stay in the caches.

use super::gemm::{Part, Rows};
use super::panels::{PAIR, Panels};
use super::simd::{LANES, Simd};
use crate::units::mutant;
use std::hint::black_box;
use std::ops::Range;

/// Pairs of k of a block: a panel's part stays in the first cache.
const BLOCK_PAIRS: usize = 192;
/// Tokens of a block: their part of a block of k stays in the second cache.
const BLOCK_TOKENS: usize = 120;
/// Panels that pass over a block of tokens.
const BLOCK_PANELS: usize = 8;
/// Activations of this size stay in the second cache as a whole: panels are then read one by one, from
/// front to back.
const SMALL_BYTES: usize = 128 << 10;

/// Some panels against all tokens.
#[inline(always)]
pub(super) fn several_tokens<S: Simd>(
    x: &Rows<'_>,
    part: &Part<'_>,
    panels: Range<usize>,
    tokens: usize,
) {
    let small = tokens * x.row_bytes() <= SMALL_BYTES;
    let block_panels = if small { 1 } else { BLOCK_PANELS };
    let block = tokens.div_ceil(tokens.div_ceil(BLOCK_TOKENS)).next_multiple_of(S::TOKENS);
    let pairs = part.weight.pairs();
    let blocks = pairs.div_ceil(BLOCK_PAIRS);
    let matrices = part.matrices().count();
    // Of a block: `[panel][matrix][token][lane]`.
    let mut sums = vec![[0.0f32; LANES]; block_panels * matrices * block.min(tokens)];
    for first in panels.clone().step_by(block_panels) {
        let group = first..(first + block_panels).min(panels.end);
        for start in (0..tokens).step_by(block) {
            let rows = start..(start + block).min(tokens);
            for at in 0..blocks {
                let pairs = pairs * at / blocks..pairs * (at + 1) / blocks;
                let mut sums = sums.chunks_exact_mut(rows.len());
                for panel in group.clone() {
                    for (weight, sums) in part.matrices().zip(&mut sums) {
                        let sums = sums.as_flattened_mut();
                        block_of_panel::<S>(x, weight, panel, pairs.clone(), rows.clone(), sums);
                    }
                }
            }
            let sums = sums.chunks_exact_mut(rows.len() * matrices);
            for (panel, sums) in group.clone().zip(sums) {
                let (sums, ups) = sums.split_at_mut(rows.len());
                let mut ups = ups.iter_mut();
                for (token, sums) in rows.clone().zip(sums) {
                    part.finish(token, panel, sums, ups.next());
                }
            }
        }
    }
}

/// A block of k of one panel against some tokens; `sums` is `tokens × LANES`.
#[inline(always)]
fn block_of_panel<S: Simd>(
    x: &Rows<'_>,
    weight: &Panels,
    panel: usize,
    pairs: Range<usize>,
    tokens: Range<usize>,
    sums: &mut [f32],
) {
    let w = &weight.from(panel)[pairs.start * PAIR..pairs.end * PAIR];
    let first = pairs.start;
    let mut token = tokens.start;
    while token < tokens.end {
        let sums = &mut sums[(token - tokens.start) * LANES..];
        token += match (tokens.end - token).min(S::TOKENS) {
            12.. => tile::<S, 12>(x, w, token, first, sums),
            8.. => tile::<S, 8>(x, w, token, first, sums),
            6.. => tile::<S, 6>(x, w, token, first, sums),
            4.. => tile::<S, 4>(x, w, token, first, sums),
            2.. => tile::<S, 2>(x, w, token, first, sums),
            _ => tile::<S, 1>(x, w, token, first, sums),
        };
    }
}

/// `T` tokens against a block of k of one panel; continues `sums` unless the block is the first.
#[inline(always)]
fn tile<S: Simd, const T: usize>(
    x: &Rows<'_>,
    w: &[u16],
    first_token: usize,
    first_pair: usize,
    sums: &mut [f32],
) -> usize {
    let sums = &mut sums[..T * LANES];
    let fresh = first_pair == 0 && !mutant!("fast_sums_not_cleared");
    // The odd k of a pair are read again, by a pointer that the compiler does not know to be the same:
    // otherwise it keeps the words of a pair in registers, which the sums need.
    let (even, odd) = (w.as_ptr(), black_box(w.as_ptr()));
    // SAFETY: `S` is dispatched to, so the machine has it; rows of x hold the pairs of the block.
    unsafe {
        let x: [*const u32; T] = std::array::from_fn(|t| x.row::<S>(first_token + t, first_pair));
        let mut acc: [S::Acc; T] = std::array::from_fn(|t| match fresh {
            true => S::zero(),
            false => S::load(sums.as_ptr().add(t * LANES)),
        });
        for i in 0..w.len() / PAIR {
            for step in 0..S::STEPS {
                let from = if step == 0 { even } else { odd };
                let w = S::weights(from.add(i * PAIR), step);
                for t in 0..T {
                    acc[t] = S::multiply(acc[t], w, x[t].add(i * S::STEPS + step));
                }
            }
        }
        for (t, acc) in acc.into_iter().enumerate() {
            S::store(sums.as_mut_ptr().add(t * LANES), acc);
        }
    }
    T
}
