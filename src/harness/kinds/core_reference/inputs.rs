//! Inputs of the cores: the same numbers here and in `scripts/make_core_vectors.py`.

use crate::units::SplitMix64;

/// Inputs of an attention core, FP32 values exact in BF16.
#[derive(Clone, Debug)]
pub(super) struct AttentionInputs {
    pub(super) shape: AttentionShape,
    /// `[token][query head][head_dim]`.
    pub(super) q: Vec<f32>,
    /// `[token][kv head][head_dim]`.
    pub(super) k: Vec<f32>,
    /// `[token][kv head][head_dim]`.
    pub(super) v: Vec<f32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct AttentionShape {
    pub(super) tokens: usize,
    pub(super) heads: usize,
    pub(super) kv_heads: usize,
    pub(super) head_dim: usize,
    /// Keys that a query sees, its own included; `None` for all.
    pub(super) window: Option<usize>,
}

impl AttentionInputs {
    pub(super) fn new(shape: AttentionShape) -> AttentionInputs {
        let AttentionShape { tokens, heads, kv_heads, head_dim, .. } = shape;
        AttentionInputs {
            shape,
            // Scores spread over several units, so that the softmax is neither flat nor one-hot.
            q: grid(1, tokens * heads * head_dim, |x| x * 8.0),
            k: grid(2, tokens * kv_heads * head_dim, |x| x),
            v: grid(3, tokens * kv_heads * head_dim, |x| x),
        }
    }
}

/// Inputs of a latent-attention core, FP32 values exact in BF16.
#[derive(Clone, Debug)]
pub(super) struct LatentInputs {
    pub(super) shape: LatentShape,
    /// `[token][head][nope | rope]`.
    pub(super) q: Vec<f32>,
    /// `[token][rope]`, the same for every head.
    pub(super) rope_key: Vec<f32>,
    /// `[token][latent]`.
    pub(super) latent: Vec<f32>,
    /// `[head][nope | value][latent]`: what makes keys and values of a latent.
    pub(super) kv_b: Vec<f32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LatentShape {
    pub(super) tokens: usize,
    pub(super) heads: usize,
    pub(super) latent: usize,
    pub(super) nope: usize,
    pub(super) rope: usize,
    pub(super) value: usize,
}

impl LatentInputs {
    pub(super) fn new(shape: LatentShape) -> LatentInputs {
        let LatentShape { tokens, heads, latent, nope, rope, value } = shape;
        LatentInputs {
            shape,
            q: grid(1, tokens * heads * (nope + rope), |x| x * 2.0),
            rope_key: grid(2, tokens * rope, |x| x),
            latent: grid(3, tokens * latent, |x| x),
            kv_b: grid(4, heads * (nope + value) * latent, |x| x / 2.0),
        }
    }
}

/// Inputs of a gated-delta-net core, FP32 values exact in BF16.
#[derive(Clone, Debug)]
pub(super) struct GdnInputs {
    pub(super) shape: GdnShape,
    /// `[token][key head][key_dim]`, not yet scaled by key_dim^-0.5.
    pub(super) q: Vec<f32>,
    /// `[token][key head][key_dim]`.
    pub(super) k: Vec<f32>,
    /// `[token][value head][value_dim]`.
    pub(super) v: Vec<f32>,
    /// g, `[token][value head]`, at most 0.
    pub(super) log_decay: Vec<f32>,
    /// `[token][value head]`, in [0, 1).
    pub(super) beta: Vec<f32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct GdnShape {
    pub(super) tokens: usize,
    pub(super) key_heads: usize,
    pub(super) value_heads: usize,
    pub(super) key_dim: usize,
    pub(super) value_dim: usize,
}

impl GdnInputs {
    pub(super) fn new(shape: GdnShape) -> GdnInputs {
        let GdnShape { tokens, key_heads, value_heads, key_dim, value_dim } = shape;
        GdnInputs {
            shape,
            q: grid(1, tokens * key_heads * key_dim, |x| x),
            k: grid(2, tokens * key_heads * key_dim, |x| x / 4.0),
            v: grid(3, tokens * value_heads * value_dim, |x| x),
            log_decay: grid(4, tokens * value_heads, |x| -(x + 1.0) / 16.0),
            beta: grid(5, tokens * value_heads, |x| (x + 1.0) / 2.0),
        }
    }
}

/// Multiples of 1/128 in [−1, 1): the top byte of successive words of the stream `seed`.
fn grid(seed: u64, count: usize, map: impl Fn(f32) -> f32) -> Vec<f32> {
    let mut words = SplitMix64::new(seed);
    (0..count).map(|_| map((words.next_word() >> 56) as f32 / 128.0 - 1.0)).collect()
}
