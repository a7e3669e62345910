//! `attention_core` of policy `fast`.
//!
//! # Numerics
//! Blocks, partial results and their merge are those of `reference` ([`super::super::attention_core`]).
//! Inside a block a score is one chain over the dimensions of q·k, ascending, times the scale; the
//! accumulator is one chain over the keys, ascending; both in FP32 with the instructions of the set
//! (`VDPBF16PS` serves the scores alone, whose operands are BF16). The sum of exp(score − m) is the
//! 16-lane sum of `reference`. Queries of a tile share loads, never sums, and a block may be computed
//! by any thread, so a row's bits depend on its query, its position and the cache alone.

#![expect(clippy::needless_range_loop, reason = "the registers of a tile are indexed together")]

use super::cache::{PanelPage, VALUE_PANEL, key_panel, padded};
use super::gemm::Rows;
use super::kernels::Kernels;
use super::panels::PAIR;
use super::simd::{LANES, Simd, dispatch};
use crate::backend::cpu::BLOCK_TOKENS;
use crate::backend::cpu::attention_core::{Shape, merge_body};
use crate::backend::cpu::lanes::sum;
use crate::backend::cpu::math::exp;
use crate::backend::cpu::pool::current_threads;
use crate::backend::cpu::rows::{Scatter, for_each_chunk, for_falling_ranges};
use crate::tensor::round_bf16;
use crate::units::mutant;
use std::ops::Range;

/// Queries of one tile at most.
const TILE: usize = 12;
/// Query-key products of one task at least.
const TASK_KEYS: usize = 1024;
/// Blocks of keys that are executed before their results are merged, per thread.
const WAVE_TASKS: usize = 64;

/// Attends every query row (`rows × heads·head_dim`, the first at `position`) to the keys up to and
/// including its own position, which the cache must hold already.
pub(in crate::backend::cpu) fn attention(
    kernels: Kernels,
    q: &[f32],
    pages: &[PanelPage],
    position: usize,
    shape: Shape,
    out: &mut [f32],
) {
    let rows = out.len() / (shape.heads * shape.head_dim);
    let group = shape.heads / shape.kv_heads;
    let queries = rows * group;
    let tiles = queries.div_ceil(TILE);
    let most = TILE.min(queries);
    let q = Rows::new(kernels, q, shape.head_dim);
    let work = Work { q: &q, pages, position, shape, group };
    let scatter = Scatter::new(out, shape.head_dim);
    let blocks = (position + rows).div_ceil(BLOCK_TOKENS);
    if shape.kv_heads * tiles >= 2 * current_threads() || blocks < 4 {
        let least = (TASK_KEYS / (most * (position + rows))).max(1);
        for_falling_ranges(shape.kv_heads * tiles, least, |range| {
            let mut running = vec![Partial::new(shape.head_dim); most];
            let mut partials = if blocks > 1 { running.clone() } else { Vec::new() };
            for task in range {
                let (kv_head, first) = (task / tiles, task % tiles * TILE);
                let count = (queries - first).min(TILE);
                for block in 0..blocks {
                    let place = Place { kv_head, first, block };
                    let target = if block == 0 { &mut running } else { &mut partials };
                    one_block(kernels, &work, place, &mut target[..count]);
                    if block > 0 {
                        let pairs = running.iter_mut().zip(&partials).take(count);
                        pairs.for_each(|(running, partial)| running.merge(partial));
                    }
                }
                for (i, running) in running.iter_mut().enumerate().take(count) {
                    work.finish(kv_head, first + i, running, &scatter);
                }
            }
        });
        return;
    }
    // Few queries and many keys: blocks are tasks, and their results are merged in order, a wave of them at a
    // time, so that memory is bounded whatever the context.
    let lines = shape.kv_heads * tiles;
    let wave = (WAVE_TASKS * current_threads()).div_ceil(lines).min(blocks);
    let mut running = vec![Partial::new(shape.head_dim); lines * most];
    let mut partials = vec![Partial::new(shape.head_dim); lines * most * wave];
    let count = |line: usize| (queries - line % tiles * TILE).min(TILE);
    for start in (0..blocks).step_by(wave) {
        let wave = wave.min(blocks - start);
        let partials = &mut partials[..lines * most * wave];
        for_each_chunk(partials, most, 1, |task, partials| {
            let (line, block) = (task / wave, start + task % wave);
            let place = Place { kv_head: line / tiles, first: line % tiles * TILE, block };
            one_block(kernels, &work, place, &mut partials[..count(line)]);
        });
        let lines = running.chunks_exact_mut(most).zip(partials.chunks_exact(most * wave));
        for (line, (running, partials)) in lines.enumerate() {
            for block in partials.chunks_exact(most) {
                let pairs = running.iter_mut().zip(block).take(count(line));
                pairs.for_each(|(running, block)| running.merge(block));
            }
        }
    }
    for (line, running) in running.chunks_exact_mut(most).enumerate() {
        for (i, result) in running.iter_mut().enumerate().take(count(line)) {
            work.finish(line / tiles, line % tiles * TILE + i, result, &scatter);
        }
    }
}

/// What the tasks of one call share. Query i of a key-value head is row i / group, head i mod group of
/// the heads that share it.
struct Work<'a> {
    q: &'a Rows<'a>,
    pages: &'a [PanelPage],
    position: usize,
    shape: Shape,
    group: usize,
}

/// Queries `first ..` of a key-value head against one block of keys.
#[derive(Clone, Copy)]
struct Place {
    kv_head: usize,
    first: usize,
    block: usize,
}

/// Result of one query over some keys: maximum score, Σ exp(score − maximum), Σ exp(score − maximum)·v.
#[derive(Clone)]
struct Partial {
    keys: usize,
    max: f32,
    total: f32,
    acc: Vec<f32>,
}

impl Partial {
    fn new(head_dim: usize) -> Partial {
        Partial { keys: 0, max: 0.0, total: 0.0, acc: vec![0.0; padded(head_dim)] }
    }

    /// Adds the next block of keys.
    fn merge(&mut self, block: &Partial) {
        if self.keys == 0 {
            return self.clone_from(block);
        }
        if block.keys > 0 {
            let running = (&mut self.max, &mut self.total, &mut self.acc[..]);
            merge_body(running, (block.max, block.total, &block.acc));
        }
    }
}

impl Work<'_> {
    /// The line of q and of the output that query `i` of a key-value head is.
    fn line(&self, kv_head: usize, i: usize) -> usize {
        i / self.group * self.shape.heads + kv_head * self.group + i % self.group
    }

    /// Keys of `block` that query `i` sees.
    fn keys(&self, i: usize, block: usize) -> usize {
        let late = usize::from(mutant!("fast_query_misses_last_key"));
        let all = (self.position + i / self.group + 1 - late).max(1);
        all.saturating_sub(block * BLOCK_TOKENS).min(BLOCK_TOKENS)
    }

    fn finish(&self, kv_head: usize, i: usize, result: &mut Partial, out: &Scatter<'_>) {
        for x in &mut result.acc {
            let value = *x / result.total;
            *x = if self.shape.round { round_bf16(value) } else { value };
        }
        // SAFETY: every query is one line and belongs to one task.
        unsafe { out.write(self.line(kv_head, i), 0, &result.acc[..self.shape.head_dim]) };
    }
}

dispatch! {
    fn one_block = one_block_body(work: &Work<'_>, place: Place, out: &mut [Partial]);
}

#[inline(always)]
fn one_block_body<S: Simd>(work: &Work<'_>, place: Place, out: &mut [Partial]) {
    let mut place = place;
    let mut out = out;
    while !out.is_empty() {
        let count = match out.len().min(S::TOKENS) {
            12.. => tile::<S, 12, 1>(work, place, out),
            6.. => tile::<S, 6, 1>(work, place, out),
            4.. => tile::<S, 4, 1>(work, place, out),
            3 => tile::<S, 3, 2>(work, place, out),
            2 => tile::<S, 2, 2>(work, place, out),
            _ => tile::<S, 1, 4>(work, place, out),
        };
        place.first += count;
        out = &mut out[count..];
    }
}

/// `T` queries against one block of keys, `P` panels of keys or dimensions at a time.
#[inline(always)]
fn tile<S: Simd, const T: usize, const P: usize>(
    work: &Work<'_>,
    place: Place,
    out: &mut [Partial],
) -> usize {
    let keys: [usize; T] = std::array::from_fn(|t| work.keys(place.first + t, place.block));
    let mut scores = [[0.0f32; BLOCK_TOKENS]; T];
    score::<S, T, P>(work, place, keys.iter().copied().max().unwrap_or(0), &mut scores);
    for t in 0..T {
        let scores = &mut scores[t][..keys[t]];
        let mut max = f32::NEG_INFINITY;
        for score in scores.iter_mut() {
            *score *= work.shape.scale;
            max = if *score > max { *score } else { max };
        }
        for score in scores.iter_mut() {
            *score = exp(*score - max);
        }
        (out[t].keys, out[t].max, out[t].total) = (keys[t], max, sum(scores));
    }
    let v = work.pages[place.block].values(place.kv_head);
    let common = keys.iter().copied().min().unwrap_or(0);
    let panels = v.len() / VALUE_PANEL;
    let mut panel = 0;
    while panel < panels {
        let count = if panel + P <= panels {
            weighted::<S::Fma, T, P>(&scores, v, panel, common, out)
        } else {
            weighted::<S::Fma, T, 1>(&scores, v, panel, common, out)
        };
        // Queries of later rows see a few keys more.
        for (t, out) in out.iter_mut().enumerate().take(T) {
            let v = &v[panel * VALUE_PANEL..(panel + count) * VALUE_PANEL];
            more_keys::<S::Fma>(&scores[t], v, common..keys[t], &mut out.acc[panel * LANES..]);
        }
        panel += count;
    }
    T
}

/// q·k of the first `most` keys of the block, and of the others of their panels.
#[inline(always)]
fn score<S: Simd, const T: usize, const P: usize>(
    work: &Work<'_>,
    place: Place,
    most: usize,
    scores: &mut [[f32; BLOCK_TOKENS]; T],
) {
    let head_dim = work.shape.head_dim;
    let line = |t: usize| work.line(place.kv_head, place.first + t);
    let q: [*const u32; T] = std::array::from_fn(|t| work.q.row::<S>(line(t), 0));
    let panel_len = key_panel(head_dim);
    let k = work.pages[place.block].keys(place.kv_head);
    for first in (0..most).step_by(P * LANES) {
        let k = &k[first / LANES * panel_len..][..P * panel_len];
        // SAFETY: `S` is dispatched to, so the machine has it; `k` holds P panels of every pair of
        // dimensions, and a row of q has as many pairs.
        unsafe {
            let mut acc = [[S::zero(); P]; T];
            for pair in 0..head_dim.div_ceil(2) {
                for step in 0..S::STEPS {
                    let at = k.as_ptr().add(pair * PAIR);
                    let mut w = [S::weights(at, step); P];
                    for p in 1..P {
                        w[p] = S::weights(at.add(p * panel_len), step);
                    }
                    for t in 0..T {
                        for p in 0..P {
                            acc[t][p] =
                                S::multiply(acc[t][p], w[p], q[t].add(pair * S::STEPS + step));
                        }
                    }
                }
            }
            for t in 0..T {
                let scores = &mut scores[t][first..first + P * LANES];
                for p in 0..P {
                    S::store(scores.as_mut_ptr().add(p * LANES), acc[t][p]);
                }
            }
        }
    }
}

/// Σ p·v over the first `keys` keys, ascending, in `P` panels of dimensions of `T` queries.
#[inline(always)]
fn weighted<S: Simd, const T: usize, const P: usize>(
    p: &[[f32; BLOCK_TOKENS]; T],
    v: &[u16],
    panel: usize,
    keys: usize,
    out: &mut [Partial],
) -> usize {
    let v = &v[panel * VALUE_PANEL..(panel + P) * VALUE_PANEL];
    debug_assert!(keys <= BLOCK_TOKENS);
    // SAFETY: `S` is of the set that was dispatched to; `v` holds P panels of all keys of a page, and
    // so does every row of p.
    unsafe {
        let mut sums = [[S::zero(); P]; T];
        for pair in 0..keys / 2 {
            one_key::<S, T, P>(&mut sums, v, 2 * pair, 0, p);
            one_key::<S, T, P>(&mut sums, v, 2 * pair + 1, 1, p);
        }
        if keys % 2 == 1 {
            one_key::<S, T, P>(&mut sums, v, keys - 1, 0, p);
        }
        for t in 0..T {
            let acc = &mut out[t].acc[panel * LANES..(panel + P) * LANES];
            for i in 0..P {
                S::store(acc.as_mut_ptr().add(i * LANES), sums[t][i]);
            }
        }
    }
    P
}

/// Adds p·v of one key; `step` is key mod 2, as a constant.
///
/// # Safety
/// This machine must have the instruction set, and `v` must hold P panels of a page.
#[inline(always)]
unsafe fn one_key<S: Simd, const T: usize, const P: usize>(
    sums: &mut [[S::Acc; P]; T],
    v: &[u16],
    key: usize,
    step: usize,
    p: &[[f32; BLOCK_TOKENS]; T],
) {
    // SAFETY: the caller's promise.
    unsafe {
        let at = v.as_ptr().add(key / 2 * PAIR);
        let mut w = [S::weights(at, step); P];
        for i in 1..P {
            w[i] = S::weights(at.add(i * VALUE_PANEL), step);
        }
        for t in 0..T {
            for i in 0..P {
                sums[t][i] = S::multiply(sums[t][i], w[i], p[t].as_ptr().add(key).cast());
            }
        }
    }
}

/// Continues the sums of one query over `keys`, in the panels of dimensions that `v` holds.
#[inline(always)]
fn more_keys<S: Simd>(p: &[f32; BLOCK_TOKENS], v: &[u16], keys: Range<usize>, acc: &mut [f32]) {
    if keys.is_empty() {
        return;
    }
    for (v, acc) in v.chunks_exact(VALUE_PANEL).zip(acc.as_chunks_mut::<LANES>().0) {
        // SAFETY: `S` is of the set that was dispatched to; keys are those of a page.
        unsafe {
            let mut sum = S::load(acc.as_ptr());
            for key in keys.clone() {
                let w = S::weights(v[key / 2 * PAIR..].as_ptr(), key % 2);
                sum = S::multiply(sum, w, p[key..].as_ptr().cast());
            }
            S::store(acc.as_mut_ptr(), sum);
        }
    }
}
