//! `gemm` and `gemm_f32` of policy `fast`.
//!
//! # Numerics
//! Every output is one chain over ascending k, from +0, in FP32: `fma(w, x, sum)` on AVX2 and AVX-512,
//! multiply and add on portable code, and `VDPBF16PS` per pair of k where the machine has it. An odd k
//! is padded with a zero product. Rows of weights are lanes, so no sum is ever split or reordered:
//! decode, batches and prefill tiles give a row the same bits. Sums that a block of k leaves off go
//! through memory as FP32, exactly.

use super::kernels::{Kernels, Set};
use super::panels::{PAIR, Panels};
use super::simd::{LANES, Simd, dispatch};
use crate::backend::cpu::math::silu;
use crate::backend::cpu::rows::{Scatter, for_ranges};
use crate::tensor::{bf16_bits, round_bf16};
use crate::units::mutant;
use std::borrow::Cow;
use std::ops::Range;

/// Pairs of k that a tile of several tokens sums at a time: a panel's part stays in the first cache.
const BLOCK_PAIRS: usize = 192;
/// Panels that a single token reads at the same time: as many streams for the prefetcher.
const STREAMS: usize = 4;
/// Bytes ahead at which a stream asks for its next line.
const AHEAD_BYTES: usize = 1024;
/// Least weight bytes of one task of a single token.
const TASK_BYTES: usize = 48 << 10;
/// Most tokens of one task.
const TASK_TOKENS: usize = 512;

/// Y = X·Wᵀ, rows of `x` (`tokens × k`) into `out` (`tokens × n`); `round` rounds to BF16.
///
/// Under `avx512_bf16` rows of `x` must be BF16 values (others would be rounded).
pub(in crate::backend::cpu) fn gemm(
    kernels: Kernels,
    x: &[f32],
    weight: &Panels,
    out: &mut [f32],
    round: bool,
) {
    multiply(kernels, x, weight, None, out, round);
}

/// Region `gate_up`: silu(X·Gᵀ) × X·Uᵀ, each product rounded as by [`gemm`].
pub(in crate::backend::cpu) fn gate_up(
    kernels: Kernels,
    x: &[f32],
    [gate, up]: [&Panels; 2],
    out: &mut [f32],
    round: bool,
) {
    multiply(kernels, x, gate, Some(up), out, round);
}

fn multiply(
    kernels: Kernels,
    x: &[f32],
    weight: &Panels,
    up: Option<&Panels>,
    out: &mut [f32],
    round: bool,
) {
    let tokens = x.len() / weight.cols;
    let x = Rows::new(kernels, x, weight.cols);
    let scatter = Scatter::new(out, weight.rows);
    let panel_bytes = weight.pairs() * PAIR * 2 * if up.is_some() { 2 } else { 1 };
    let least = if tokens == 1 { (TASK_BYTES / panel_bytes).max(1) } else { 1 };
    for start in (0..tokens).step_by(TASK_TOKENS) {
        let count = (tokens - start).min(TASK_TOKENS);
        for_ranges(weight.count(), least, |range| {
            let task = Task { weight, up, x: &x, tokens: start..start + count, round };
            product(kernels, &task, range, &scatter);
        });
    }
}

/// Activation rows as the kernels of an instruction set read them.
pub(in crate::backend::cpu) struct Rows<'a> {
    words: Cow<'a, [u32]>,
    /// Of a row.
    words_per_row: usize,
}

impl<'a> Rows<'a> {
    /// Rows of `cols` values; an odd last k gets a zero beside it.
    pub(in crate::backend::cpu) fn new(kernels: Kernels, x: &'a [f32], cols: usize) -> Rows<'a> {
        let pairs = cols.div_ceil(2);
        if kernels.set() == Set::Avx512Bf16 {
            let pair = |p: &[f32]| {
                let odd = p.get(1).map_or(0, |x| u32::from(bf16_bits(*x)));
                odd << 16 | u32::from(bf16_bits(p[0]))
            };
            let words = x.chunks_exact(cols).flat_map(|row| row.chunks(2).map(pair)).collect();
            return Rows { words: Cow::Owned(words), words_per_row: pairs };
        }
        if cols.is_multiple_of(2) {
            // SAFETY: FP32 values and their bits have the same size and alignment.
            let words = unsafe { std::slice::from_raw_parts(x.as_ptr().cast::<u32>(), x.len()) };
            return Rows { words: Cow::Borrowed(words), words_per_row: cols };
        }
        let padded = |row: &[f32]| row.iter().map(|x| x.to_bits()).chain([0]).collect::<Vec<u32>>();
        let words = x.chunks_exact(cols).flat_map(padded).collect();
        Rows { words: Cow::Owned(words), words_per_row: cols + 1 }
    }

    /// The words of a row, from `pair` on; `S` is of the kernels that the rows were made for.
    #[inline(always)]
    pub(super) fn row<S: Simd>(&self, row: usize, pair: usize) -> *const u32 {
        self.words[row * self.words_per_row + pair * S::STEPS..].as_ptr()
    }
}

/// What the tasks of one product share.
struct Task<'a> {
    weight: &'a Panels,
    /// The second matrix of `gate_up`; `weight` is the gate then.
    up: Option<&'a Panels>,
    x: &'a Rows<'a>,
    tokens: Range<usize>,
    round: bool,
}

dispatch! {
    /// Some panels against some tokens.
    fn product = product_body(task: &Task<'_>, panels: Range<usize>, out: &Scatter<'_>);
}

#[inline(always)]
fn product_body<S: Simd>(task: &Task<'_>, panels: Range<usize>, out: &Scatter<'_>) {
    if task.tokens.len() > 1 {
        several_tokens::<S>(task, panels, out);
        return;
    }
    let token = task.tokens.start;
    let mut panel = panels.start;
    while panel < panels.end {
        panel += match (panels.end - panel, task.up) {
            (STREAMS.., None) => one_token::<S, STREAMS>(task, token, panel, out),
            (2.., Some(up)) => gate_up_token::<S, 2>(task, up, token, panel, out),
            (_, Some(up)) => gate_up_token::<S, 1>(task, up, token, panel, out),
            (2.., None) => one_token::<S, 2>(task, token, panel, out),
            _ => one_token::<S, 1>(task, token, panel, out),
        };
    }
}

/// `P` panels from `panel` on against one token.
#[inline(always)]
fn one_token<S: Simd, const P: usize>(
    task: &Task<'_>,
    token: usize,
    panel: usize,
    out: &Scatter<'_>,
) -> usize {
    let mut sums = streams::<S, P>(task.x, task.weight, token, panel);
    for (p, sums) in sums.iter_mut().enumerate() {
        round_all(sums, task.round);
        write(task, token, panel + p, sums, out);
    }
    P
}

/// `P` panels of the gate and of the up projection against one token.
#[inline(always)]
fn gate_up_token<S: Simd, const P: usize>(
    task: &Task<'_>,
    up: &Panels,
    token: usize,
    panel: usize,
    out: &Scatter<'_>,
) -> usize {
    let mut gates = streams::<S, P>(task.x, task.weight, token, panel);
    let mut ups = streams::<S, P>(task.x, up, token, panel);
    for (p, (gate, up)) in gates.iter_mut().zip(&mut ups).enumerate() {
        activate(gate, up, task.round);
        write(task, token, panel + p, gate, out);
    }
    P
}

/// Products of `P` panels with one token, unrounded.
#[inline(always)]
fn streams<S: Simd, const P: usize>(
    x: &Rows<'_>,
    weight: &Panels,
    token: usize,
    panel: usize,
) -> [[f32; LANES]; P] {
    let pairs = weight.pairs();
    let w = &weight.from(panel)[..P * pairs * PAIR];
    let mut sums = [[0.0f32; LANES]; P];
    // SAFETY: `S` is dispatched to, so the machine has it; `w` holds P panels of `pairs` pairs and the
    // row of x as many.
    unsafe {
        let x = x.row::<S>(token, 0);
        let mut acc = [S::zero(); P];
        for i in 0..pairs {
            for (p, acc) in acc.iter_mut().enumerate() {
                let at = w.as_ptr().add((p * pairs + i) * PAIR);
                prefetch(at.cast::<u8>().wrapping_add(AHEAD_BYTES));
                for step in 0..S::STEPS {
                    *acc = S::multiply(*acc, S::weights(at, step), x.add(i * S::STEPS + step));
                }
            }
        }
        for (sums, acc) in sums.iter_mut().zip(acc) {
            S::store(sums.as_mut_ptr(), acc);
        }
    }
    sums
}

/// Some panels against several tokens.
#[inline(always)]
fn several_tokens<S: Simd>(task: &Task<'_>, panels: Range<usize>, out: &Scatter<'_>) {
    let mut sums = vec![[0.0f32; LANES]; task.tokens.len()];
    let mut ups = vec![[0.0f32; LANES]; if task.up.is_some() { sums.len() } else { 0 }];
    for panel in panels {
        tiles::<S>(task, task.weight, panel, sums.as_flattened_mut());
        if let Some(up) = task.up {
            tiles::<S>(task, up, panel, ups.as_flattened_mut());
            let pairs = sums.iter_mut().zip(&mut ups);
            pairs.for_each(|(gate, up)| activate(gate, up, task.round));
        } else {
            sums.iter_mut().for_each(|sums| round_all(sums, task.round));
        }
        for (token, sums) in task.tokens.clone().zip(&sums) {
            write(task, token, panel, sums, out);
        }
    }
}

/// One panel against all tokens; `sums` is `tokens × LANES`.
#[inline(always)]
fn tiles<S: Simd>(task: &Task<'_>, weight: &Panels, panel: usize, sums: &mut [f32]) {
    let pairs = weight.pairs();
    let blocks = pairs.div_ceil(BLOCK_PAIRS);
    for block in 0..blocks {
        let range = pairs * block / blocks..pairs * (block + 1) / blocks;
        let w = &weight.from(panel)[range.start * PAIR..range.end * PAIR];
        let mut done = 0;
        let tokens = task.tokens.len();
        while done < tokens {
            let sums = &mut sums[done * LANES..];
            let first = task.tokens.start + done;
            let at = (range.start, block == 0);
            done += match (tokens - done).min(S::TOKENS) {
                12.. => tile::<S, 12>(task.x, w, first, at, sums),
                8.. => tile::<S, 8>(task.x, w, first, at, sums),
                5.. => tile::<S, 5>(task.x, w, first, at, sums),
                4.. => tile::<S, 4>(task.x, w, first, at, sums),
                2.. => tile::<S, 2>(task.x, w, first, at, sums),
                _ => tile::<S, 1>(task.x, w, first, at, sums),
            };
        }
    }
}

/// `T` tokens against a block of k of one panel; continues `sums` unless the block is the first.
#[inline(always)]
fn tile<S: Simd, const T: usize>(
    x: &Rows<'_>,
    w: &[u16],
    first_token: usize,
    (first_pair, fresh): (usize, bool),
    sums: &mut [f32],
) -> usize {
    let sums = &mut sums[..T * LANES];
    // SAFETY: `S` is dispatched to, so the machine has it; rows of x hold the pairs of the block.
    unsafe {
        let x: [*const u32; T] = std::array::from_fn(|t| x.row::<S>(first_token + t, first_pair));
        let mut acc: [S::Acc; T] =
            std::array::from_fn(|t| match fresh && !mutant!("fast_sums_not_cleared") {
                true => S::zero(),
                false => S::load(sums.as_ptr().add(t * LANES)),
            });
        for (i, pair) in w.chunks_exact(PAIR).enumerate() {
            for step in 0..S::STEPS {
                let w = S::weights(pair.as_ptr(), step);
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

/// Rounds to BF16 where the policy does.
#[inline(always)]
fn round_all(values: &mut [f32; LANES], round: bool) {
    if round {
        values.iter_mut().for_each(|v| *v = round_bf16(*v));
    }
}

/// gate ← round(silu(round(gate)) · round(up)), as `silu_mul` after two products.
#[inline(always)]
fn activate(gate: &mut [f32; LANES], up: &mut [f32; LANES], round: bool) {
    round_all(gate, round);
    round_all(up, round);
    for (g, u) in gate.iter_mut().zip(up) {
        *g = silu(*g) * *u;
    }
    round_all(gate, round);
}

/// Writes the outputs of one panel and token that exist.
#[inline(always)]
fn write(task: &Task<'_>, token: usize, panel: usize, sums: &[f32; LANES], out: &Scatter<'_>) {
    let row = panel * LANES;
    let count = (task.weight.rows - row).min(LANES);
    // SAFETY: tasks own disjoint panels, hence disjoint columns.
    unsafe { out.write(token, row, &sums[..count]) };
}

#[inline(always)]
fn prefetch(address: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch reads nothing that the program can see, at any address.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(address.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}
