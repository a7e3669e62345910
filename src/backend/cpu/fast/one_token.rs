//! Products of a single token: weights are read once, as fast as memory gives them.

use super::gemm::{Part, Rows};
use super::panels::PAIR;
use super::simd::{LANES, Simd};
use std::ops::Range;

/// Cache lines that a thread asks for ahead of their use, over all its streams.
const AHEAD_LINES: usize = 64;

/// Some panels against one token: up to four at a time, as many streams.
#[inline(always)]
pub(super) fn one_token<S: Simd>(x: &Rows<'_>, part: &Part<'_>, panels: Range<usize>) {
    let mut panel = panels.start;
    while panel < panels.end {
        // Five are three and two: a stream alone cannot keep memory busy.
        panel += match panels.end - panel {
            1 => group::<S, 1>(x, part, panel),
            2 => group::<S, 2>(x, part, panel),
            3 | 5 => group::<S, 3>(x, part, panel),
            _ => group::<S, 4>(x, part, panel),
        };
    }
}

/// `P` panels from `panel` on.
#[inline(always)]
fn group<S: Simd, const P: usize>(x: &Rows<'_>, part: &Part<'_>, panel: usize) -> usize {
    let weight = part.weight.from(panel);
    let following = weight.as_ptr().wrapping_add(P * part.weight.pairs() * PAIR);
    let pairs = part.weight.pairs();
    match part.up {
        None => {
            let mut sums = streams::<S, P>(x, weight, pairs, following);
            for (p, sums) in sums.iter_mut().enumerate() {
                part.finish(0, panel + p, sums, None);
            }
        }
        Some(up) => {
            let up = up.from(panel);
            let mut gates = streams::<S, P>(x, weight, pairs, up.as_ptr());
            let mut ups = streams::<S, P>(x, up, pairs, following);
            for (p, (gate, up)) in gates.iter_mut().zip(&mut ups).enumerate() {
                part.finish(0, panel + p, gate, Some(up));
            }
        }
    }
    P
}

/// Sums of the first `P` panels of `w` with the token. While they end, the first lines of the panels
/// at `following` are asked for.
#[inline(always)]
fn streams<S: Simd, const P: usize>(
    x: &Rows<'_>,
    w: &[u16],
    pairs: usize,
    following: *const u16,
) -> [[f32; LANES]; P] {
    let panel = pairs * PAIR;
    let w = &w[..P * panel];
    let ahead = AHEAD_LINES / P;
    let turn = pairs.saturating_sub(ahead);
    let mut sums = [[0.0f32; LANES]; P];
    // SAFETY: `S` is dispatched to, so the machine has it; `w` holds P panels of `pairs` pairs and the
    // row of x as many.
    unsafe {
        let x = x.row::<S>(0, 0);
        let mut acc = [S::zero(); P];
        for i in 0..turn {
            pair::<S, P>(&mut acc, w.as_ptr(), panel, i, x, w.as_ptr().wrapping_add(ahead * PAIR));
        }
        let following = following.wrapping_sub(turn * PAIR);
        for i in turn..pairs {
            pair::<S, P>(&mut acc, w.as_ptr(), panel, i, x, following);
        }
        for (sums, acc) in sums.iter_mut().zip(acc) {
            S::store(sums.as_mut_ptr(), acc);
        }
    }
    sums
}

/// Adds pair `i` of `P` panels that lie `panel` elements apart; asks for the lines at the same places
/// from `ahead` on.
///
/// # Safety
/// The machine must have the instruction set, and the pair must exist in every panel and in x.
#[inline(always)]
unsafe fn pair<S: Simd, const P: usize>(
    acc: &mut [S::Acc; P],
    w: *const u16,
    panel: usize,
    i: usize,
    x: *const u32,
    ahead: *const u16,
) {
    for (p, acc) in acc.iter_mut().enumerate() {
        let at = p * panel + i * PAIR;
        prefetch(ahead.wrapping_add(at));
        for step in 0..S::STEPS {
            // SAFETY: the caller's promise.
            unsafe {
                *acc = S::multiply(*acc, S::weights(w.add(at), step), x.add(i * S::STEPS + step));
            }
        }
    }
}

/// Asks for the cache line at an address, which need not be readable.
#[inline(always)]
fn prefetch(address: *const u16) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch reads nothing that the program can see, at any address.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(address.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}
