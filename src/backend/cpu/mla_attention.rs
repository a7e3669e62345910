//! Regions `mla_latent_norm` and `mla_attention`: attention over a cached latent, absorbed.
//!
//! # Numerics
//! `mla_latent_norm`: a row is `[latent | rope key]`; the latent is normalised as in `rms_norm`
//! (`plain`), the rope key is copied.
//!
//! `mla_attention` never expands keys and values. With W_k and W_v the parts of `kv_b` of a head:
//! q_c = W_kᵀ·q_nope (rows of W_k ascending), rounded; score = (q_c·c + q_rope·k_rope) · scale with
//! both dot products in 16 lanes; keys are cut at absolute multiples of 256 and blocks merge as in
//! `attention_core`; the weighted latent Σ p·c / Σ p is rounded, and the output W_v · latent, summed as
//! in `gemm`, is rounded once more. Every case executes this same form, so a row's bits depend on its
//! query, its position and the cached latents alone. Scratch is one block of scores and two latents,
//! whatever the context.
//!
//! DeepSeek-AI, "DeepSeek-V2" (2024), sections 2.1.2 and 2.1.3; expanding keys and values first is
//! the reference in the tests.

use super::attention_core::{BLOCK_TOKENS, merge};
use super::gemm::vector;
use super::isa::multiversion;
use super::lanes::{Widen, dot, sum};
use super::math::exp;
use super::rms_norm::{Norm, rms_norm};
use super::rows::{Scatter, for_each_row, for_ranges, items_per_task};
use super::state::{AttentionCache, Page};
use super::weighted_rows::add_weighted_rows;
use crate::backend::cpu::Isa;
use crate::tensor::{Storage, Weight, round_bf16};
use crate::units::mutant;

/// Normalises the latents of `x` (`rows × (latent + rope)`) into `latent` and copies the rope keys.
pub(super) fn mla_latent_norm(
    isa: Isa,
    x: &[f32],
    norm: Norm<'_>,
    latent: &mut [f32],
    rope_key: &mut [f32],
) {
    let width = norm.weight.len();
    let rows = latent.len() / width;
    let rope = rope_key.len() / rows.max(1);
    let mut raw = vec![0.0; latent.len()];
    for_each_row(&mut raw, width, |row, out| {
        out.copy_from_slice(&x[row * (width + rope)..][..width]);
    });
    for_each_row(rope_key, rope, |row, out| {
        let start = if mutant!("mla_rope_key_shifted") { width - 1 } else { width };
        out.copy_from_slice(&x[row * (width + rope) + start..][..rope]);
    });
    match mutant!("mla_latent_not_normalised") {
        true => latent.copy_from_slice(&raw),
        false => rms_norm(isa, &raw, norm, latent),
    }
}

/// Dimensions of one latent attention.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    pub(super) heads: usize,
    pub(super) nope: usize,
    pub(super) rope: usize,
    pub(super) latent: usize,
    pub(super) value: usize,
    pub(super) scale: f32,
    pub(super) round: bool,
}

/// Attends every query row (`rows × heads·(nope + rope)`, the first at `position`) to the keys up to
/// and including its own position, which the cache must hold already. `kv_b` has per head `nope`
/// rows for keys, then `value` rows for values.
pub(super) fn mla_attention(
    isa: Isa,
    q: &[f32],
    cache: &AttentionCache,
    kv_b: &Weight,
    position: usize,
    shape: Shape,
    out: &mut [f32],
) {
    match (&kv_b.storage, cache) {
        (_, AttentionCache::Panels(_)) => unreachable!("latents are kept in plain pages"),
        (Storage::Int4(_), _) => unreachable!("packed weights have their own kernels"),
        (Storage::Bf16(w), AttentionCache::Bf16(p)) => all(isa, q, p, w, position, shape, out),
        (Storage::Bf16(w), AttentionCache::F32(p)) => all(isa, q, p, w, position, shape, out),
        (Storage::F32(w), AttentionCache::Bf16(p)) => all(isa, q, p, w, position, shape, out),
        (Storage::F32(w), AttentionCache::F32(p)) => all(isa, q, p, w, position, shape, out),
    }
}

fn all<W: Widen, E: Widen + Default>(
    isa: Isa,
    q: &[f32],
    pages: &[Page<E>],
    kv_b: &[W],
    position: usize,
    shape: Shape,
    out: &mut [f32],
) {
    let Shape { heads, nope, rope, latent, value, .. } = shape;
    let rows = out.len() / (heads * value);
    let products = 2 * latent * (position + rows) + (nope + value) * latent;
    let scatter = Scatter::new(out, value);
    for_ranges(rows * heads, items_per_task(products), |range| {
        let mut scratch = Scratch::default();
        let mut result = vec![0.0; value];
        for i in range {
            let (row, head) = (i / heads, i % heads);
            let q = &q[i * (nope + rope)..][..nope + rope];
            let kv_b = &kv_b[head * (nope + value) * latent..][..(nope + value) * latent];
            one_row(isa, q, pages, position + row + 1, kv_b, shape, &mut scratch, &mut result);
            // SAFETY: every task owns its lines of `out`.
            unsafe { scatter.write(i, 0, &result) };
        }
    });
}

#[derive(Default)]
struct Scratch {
    query: Vec<f32>,
    scores: Vec<f32>,
    total: Vec<f32>,
    block: Vec<f32>,
}

#[expect(clippy::too_many_arguments, reason = "a kernel names every operand")]
fn one_row<W: Widen, E: Widen + Default>(
    isa: Isa,
    q: &[f32],
    pages: &[Page<E>],
    keys: usize,
    kv_b: &[W],
    shape: Shape,
    s: &mut Scratch,
    out: &mut [f32],
) {
    let Shape { nope, latent, round, .. } = shape;
    let (q_nope, q_rope) = q.split_at(nope);
    let (up_keys, up_values) = kv_b.split_at(nope * latent);
    for buffer in [&mut s.query, &mut s.total, &mut s.block] {
        buffer.clear();
        buffer.resize(latent, 0.0);
    }
    let up_keys = if mutant!("mla_value_rows_as_keys") { &kv_b[latent..] } else { up_keys };
    absorb(isa, q_nope, up_keys, round, &mut s.query);
    let (mut max, mut sum) = (0.0, 0.0);
    for (b, page) in pages.iter().enumerate().take(keys.div_ceil(BLOCK_TOKENS)) {
        let (rope_keys, latents) = (page.keys(0), page.values(0));
        s.scores.resize((keys - b * BLOCK_TOKENS).min(BLOCK_TOKENS), 0.0);
        let target = if b == 0 { &mut s.total[..] } else { &mut s.block[..] };
        let (m, l) =
            block(isa, (&s.query, q_rope), rope_keys, latents, shape.scale, &mut s.scores, target);
        if b == 0 {
            (max, sum) = (m, l);
        } else {
            merge(isa, (&mut max, &mut sum, &mut s.total), (m, l, &s.block));
        }
    }
    for x in &mut s.total {
        let value = *x / sum;
        *x = if round { round_bf16(value) } else { value };
    }
    vector(isa, &s.total, up_values, latent, out, round);
}

multiversion! {
    /// q_c = W_kᵀ·q, rounded.
    fn absorb<W: Widen> = absorb_body(q: &[f32], keys: &[W], round: bool, out: &mut [f32]);
    /// One block: scores, maximum, sum and the weighted latents.
    fn block<E: Widen> = block_body(q: (&[f32], &[f32]), rope_keys: &[E], latents: &[E], scale: f32, scores: &mut [f32], acc: &mut [f32]) -> (f32, f32);
}

#[inline(always)]
fn absorb_body<W: Widen>(q: &[f32], keys: &[W], round: bool, out: &mut [f32]) {
    add_weighted_rows(q, keys, out);
    if round {
        out.iter_mut().for_each(|x| *x = round_bf16(*x));
    }
}

#[inline(always)]
fn block_body<E: Widen>(
    q: (&[f32], &[f32]),
    rope_keys: &[E],
    latents: &[E],
    scale: f32,
    scores: &mut [f32],
    acc: &mut [f32],
) -> (f32, f32) {
    let (q, q_rope) = q;
    let scale = if mutant!("mla_scale_without_mscale") { scale * 0.9 } else { scale };
    let mut max = f32::NEG_INFINITY;
    let keys = latents.chunks_exact(q.len()).zip(rope_keys.chunks_exact(q_rope.len()));
    for (score, (c, k)) in scores.iter_mut().zip(keys) {
        *score = (dot(q, c) + dot(q_rope, k)) * scale;
        max = if *score > max { *score } else { max };
    }
    for score in scores.iter_mut() {
        *score = exp(*score - max);
    }
    acc.fill(0.0);
    add_weighted_rows(scores, latents, acc);
    (max, sum(scores))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::{CacheKind, CacheSpec, Policy};
    use crate::tensor::{Shared, bf16_bits};
    use crate::units::SplitMix64;

    fn noise(count: usize, seed: u64, scale: f32) -> Vec<f32> {
        let mut words = SplitMix64::new(seed);
        let unit = |word: u64| (word >> 40) as f32 / 8_388_608.0 - 1.0;
        (0..count).map(|_| round_bf16(unit(words.next_word()) * scale)).collect()
    }

    /// Keys and values expanded first, in FP64.
    fn naive(q: &[f32], k: &[f32], c: &[f32], w: &[f32], keys: usize, s: Shape) -> Vec<f64> {
        let wide = |x: &[f32]| -> Vec<f64> { x.iter().map(|x| f64::from(*x)).collect() };
        let (q, k, c, w) = (wide(q), wide(k), wide(c), wide(w));
        let dot64 = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(x, y)| x * y).sum::<f64>();
        let mut out = Vec::new();
        for head in 0..s.heads {
            let w = &w[head * (s.nope + s.value) * s.latent..];
            let row = |r: usize, t: usize| {
                dot64(&w[r * s.latent..][..s.latent], &c[t * s.latent..][..s.latent])
            };
            let q = &q[head * (s.nope + s.rope)..][..s.nope + s.rope];
            let scores: Vec<f64> = (0..keys)
                .map(|t| {
                    let expanded: Vec<f64> = (0..s.nope).map(|r| row(r, t)).collect();
                    let rope = dot64(&q[s.nope..], &k[t * s.rope..][..s.rope]);
                    (dot64(&q[..s.nope], &expanded) + rope) * f64::from(s.scale)
                })
                .collect();
            let max = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let p: Vec<f64> = scores.iter().map(|x| (x - max).exp()).collect();
            let total: f64 = p.iter().sum();
            out.extend(
                (0..s.value)
                    .map(|v| (0..keys).map(|t| p[t] * row(s.nope + v, t)).sum::<f64>() / total),
            );
        }
        out
    }

    #[test]
    fn the_absorbed_form_is_the_expanded_one() {
        for (keys, value) in [(1, 24), (257, 24), (600, 8)] {
            let mut s =
                Shape { heads: 3, nope: 16, rope: 8, latent: 40, value, scale: 0.31, round: false };
            let spec = CacheSpec {
                layer: 0,
                kv_heads: 1,
                head_dim: s.rope,
                value_dim: s.latent,
                kind: CacheKind::Latent,
            };
            let (k, c) = (noise(keys * s.rope, 1, 2.0), noise(keys * s.latent, 2, 1.0));
            let w = noise(s.heads * (s.nope + s.value) * s.latent, 3, 0.5);
            let q = noise(s.heads * (s.nope + s.rope), 4, 2.0);
            let kv_b = Weight {
                rows: s.heads * (s.nope + s.value),
                cols: s.latent,
                storage: Storage::Bf16(Shared::owned(w.iter().map(|x| bf16_bits(*x)).collect())),
            };
            let expected = naive(&q, &k, &c, &w, keys, s);
            for (round, bound) in [(false, 2e-6), (true, 1.5e-2)] {
                s.round = round;
                let policy = if round { Policy::Reference } else { Policy::F32 };
                let mut cache = AttentionCache::new(policy, &spec);
                cache.write(&spec, 0, &k, &c);
                let mut out = vec![f32::NAN; s.heads * s.value];
                mla_attention(Isa::detect(), &q, &cache, &kv_b, keys - 1, s, &mut out);
                let largest = expected.iter().fold(0.0f64, |a, b| a.max(b.abs()));
                for (x, y) in expected.iter().zip(&out) {
                    let error = (x - f64::from(*y)).abs() / largest;
                    assert!(error < bound, "{keys} keys, round {round}: {error}");
                }
            }
        }
    }
}
