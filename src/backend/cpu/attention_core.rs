//! Region `attention_core`: softmax attention over the paged cache.
//!
//! # Numerics
//! Keys are cut at absolute multiples of [`BLOCK_TOKENS`]. A block yields its maximum score m, the
//! sum l of exp(score − m) (16 lanes by key index) and the accumulator Σ exp(score − m)·v (keys
//! ascending), all FP32; a score is (q·k, 16 lanes) × scale. Blocks merge in ascending order:
//! m' = max(m, m_b), a = exp(m − m'), b = exp(m_b − m'), l' = l·a + l_b·b, acc' = acc·a + acc_b·b.
//! The result acc / l is rounded once. A row's bits depend on its query, its position and the cached
//! keys and values alone, in prefill, split prefill and decode alike. A sliding window leaves out the
//! keys before it; blocks stay where they are.

use super::isa::multiversion;
use super::lanes::{Widen, dot, sum};
use super::math::exp;
use super::rows::{for_each_chunk, items_per_task};
use super::state::{AttentionCache, Page};
use super::weighted_rows::add_weighted_rows;
use crate::backend::cpu::Isa;
use crate::tensor::round_bf16;
use crate::units::mutant;

/// Keys of one block, and of one cache page.
pub const BLOCK_TOKENS: usize = 256;

/// Dimensions of one attention.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    pub(super) heads: usize,
    pub(super) kv_heads: usize,
    pub(super) head_dim: usize,
    pub(super) scale: f32,
    /// Keys that a query sees, its own included; `None` for all.
    pub(super) window: Option<usize>,
    pub(super) round: bool,
}

/// Attends every query row (`rows × heads·head_dim`, the first at `position`) to the keys up to and
/// including its own position, which the cache must hold already.
pub(super) fn attention_core(
    isa: Isa,
    q: &[f32],
    cache: &AttentionCache,
    position: usize,
    shape: Shape,
    out: &mut [f32],
) {
    let rows = out.len() / (shape.heads * shape.head_dim);
    let least = items_per_task(2 * shape.head_dim * (position + rows));
    for_each_chunk(out, shape.head_dim, least, |i, out| {
        let s = &mut Scratch::default();
        let (row, head) = (i / shape.heads, i % shape.heads);
        let q = &q[i * shape.head_dim..][..shape.head_dim];
        let keys = (position + row + usize::from(!mutant!("attention_misses_own_key"))).max(1);
        match cache {
            AttentionCache::Bf16(pages) => one_row(isa, q, pages, keys, head, shape, s, out),
            AttentionCache::F32(pages) => one_row(isa, q, pages, keys, head, shape, s, out),
            AttentionCache::Panels(_) => unreachable!("`fast` has its own kernel"),
        }
    });
}

#[derive(Default)]
struct Scratch {
    scores: Vec<f32>,
    block: Vec<f32>,
}

#[expect(clippy::too_many_arguments, reason = "a kernel names every operand")]
fn one_row<E: Widen>(
    isa: Isa,
    q: &[f32],
    pages: &[Page<E>],
    keys: usize,
    head: usize,
    shape: Shape,
    scratch: &mut Scratch,
    out: &mut [f32],
) {
    let kv_head = match mutant!("attention_wrong_kv_head") {
        true => head % shape.kv_heads,
        false => head / (shape.heads / shape.kv_heads),
    };
    let (mut max, mut total) = (0.0, 0.0);
    scratch.block.resize(shape.head_dim, 0.0);
    // Blocks stay those of absolute positions; a window leaves out the keys before it.
    let one_short = usize::from(mutant!("attention_window_one_short"));
    let seen_from = shape.window.map_or(0, |window| keys.saturating_sub(window - one_short));
    let first = seen_from / BLOCK_TOKENS;
    for (b, page) in pages.iter().enumerate().take(keys.div_ceil(BLOCK_TOKENS)).skip(first) {
        let n = (keys - b * BLOCK_TOKENS).min(BLOCK_TOKENS);
        let hidden = seen_from.saturating_sub(b * BLOCK_TOKENS);
        let n = n - hidden;
        let k = &page.keys(kv_head)[hidden * shape.head_dim..];
        let v = &page.values(kv_head)[hidden * shape.head_dim..];
        scratch.scores.resize(n, 0.0);
        let target = if b == first { &mut *out } else { &mut scratch.block[..] };
        let (m, l) = block(isa, q, k, v, shape.scale, &mut scratch.scores, target);
        if b == first {
            (max, total) = (m, l);
        } else {
            merge(isa, (&mut max, &mut total, &mut *out), (m, l, &scratch.block));
        }
    }
    for o in out.iter_mut() {
        let value = *o / total;
        *o = if shape.round { round_bf16(value) } else { value };
    }
}

multiversion! {
    /// One block: scores, maximum, sum and accumulator.
    fn block<E: Widen> = block_body(q: &[f32], k: &[E], v: &[E], scale: f32, scores: &mut [f32], acc: &mut [f32]) -> (f32, f32);
    /// Merges a block into the running result.
    pub(super) fn merge = merge_body(running: (&mut f32, &mut f32, &mut [f32]), block: (f32, f32, &[f32]));
}

#[inline(always)]
fn block_body<E: Widen>(
    q: &[f32],
    k: &[E],
    v: &[E],
    scale: f32,
    scores: &mut [f32],
    acc: &mut [f32],
) -> (f32, f32) {
    let head_dim = q.len();
    let mut max = f32::NEG_INFINITY;
    for (score, k) in scores.iter_mut().zip(k.chunks_exact(head_dim)) {
        *score = dot(q, k) * scale;
        max = if *score > max { *score } else { max };
    }
    for score in scores.iter_mut() {
        *score = exp(*score - max);
    }
    acc.fill(0.0);
    add_weighted_rows(scores, v, acc);
    (max, sum(scores))
}

#[inline(always)]
pub(super) fn merge_body(running: (&mut f32, &mut f32, &mut [f32]), block: (f32, f32, &[f32])) {
    let (max, total, acc) = running;
    let (block_max, block_total, block_acc) = block;
    let joint = if block_max > *max { block_max } else { *max };
    let skipped = mutant!("attention_merge_unscaled");
    let a = if skipped { 1.0 } else { exp(*max - joint) };
    let b = exp(block_max - joint);
    *max = joint;
    *total = *total * a + block_total * b;
    for (x, y) in acc.iter_mut().zip(block_acc) {
        *x = *x * a + y * b;
    }
}
