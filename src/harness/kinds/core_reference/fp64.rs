//! The cores in FP64, straight from their definitions: slow, and obviously what they claim to be.

use super::inputs::{
    AttentionInputs, AttentionShape, GdnInputs, GdnShape, LatentInputs, LatentShape,
};
use std::ops::RangeInclusive;

/// Causal softmax(q·kᵀ / √head_dim)·v over the keys seen, `[token][query head][head_dim]`.
///
/// Vaswani et al., "Attention is all you need" (2017); query head h reads key head
/// h / (heads / kv_heads).
pub(super) fn attention(inputs: &AttentionInputs) -> Vec<f64> {
    let AttentionShape { tokens, heads, kv_heads, head_dim, .. } = inputs.shape;
    let mut out = vec![0.0; tokens * heads * head_dim];
    for (i, out) in out.chunks_exact_mut(head_dim).enumerate() {
        let kv_head = i % heads / (heads / kv_heads);
        let Softmax { weights, total, .. } = Softmax::of(scores(inputs, i));
        let seen = inputs.shape.seen(i / heads);
        for (d, out) in out.iter_mut().enumerate() {
            let value = |t: usize| f64::from(inputs.v[(t * kv_heads + kv_head) * head_dim + d]);
            let sum: f64 = weights.iter().zip(seen.clone()).map(|(w, t)| w * value(t)).sum();
            *out = sum / total;
        }
    }
    out
}

/// ln Σ exp(score) of every row and head, `[token][query head]`.
pub(super) fn log_sums(inputs: &AttentionInputs) -> Vec<f64> {
    let AttentionShape { tokens, heads, .. } = inputs.shape;
    let of = |i: usize| {
        let Softmax { largest, total, .. } = Softmax::of(scores(inputs, i));
        largest + total.ln()
    };
    (0..tokens * heads).map(of).collect()
}

/// A softmax before its division.
struct Softmax {
    /// The largest score.
    largest: f64,
    /// exp(score − largest).
    weights: Vec<f64>,
    /// Their sum.
    total: f64,
}

impl Softmax {
    fn of(scores: Vec<f64>) -> Softmax {
        let largest = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let weights: Vec<f64> = scores.iter().map(|s| (s - largest).exp()).collect();
        let total = weights.iter().sum();
        Softmax { largest, weights, total }
    }
}

impl AttentionShape {
    /// The keys that a row sees: its own and those before, or the last of these.
    fn seen(&self, row: usize) -> RangeInclusive<usize> {
        let first = self.window.map_or(0, |window| (row + 1).saturating_sub(window));
        first..=row
    }
}

/// q·k / √head_dim of item `i`, a row and head, for every key seen.
fn scores(inputs: &AttentionInputs, i: usize) -> Vec<f64> {
    let AttentionShape { heads, kv_heads, head_dim, .. } = inputs.shape;
    let (row, kv_head) = (i / heads, i % heads / (heads / kv_heads));
    let q = &inputs.q[i * head_dim..][..head_dim];
    let score = |token: usize| {
        let k = &inputs.k[(token * kv_heads + kv_head) * head_dim..][..head_dim];
        let dot: f64 = q.iter().zip(k).map(|(q, k)| f64::from(*q) * f64::from(*k)).sum();
        dot / (head_dim as f64).sqrt()
    };
    inputs.shape.seen(row).map(score).collect()
}

/// Causal attention over keys and values that are made of latents, nothing absorbed: `[token][head][value]`.
///
/// k = [W_k·c | rope key], v = W_v·c, softmax(q·kᵀ / √(nope + rope))·v. DeepSeek-AI, "DeepSeek-V2" (2024), section
/// 2.1.
pub(super) fn latent_attention(inputs: &LatentInputs) -> Vec<f64> {
    let LatentShape { tokens, heads, latent, nope, rope, value } = inputs.shape;
    let mut out = vec![0.0; tokens * heads * value];
    for head in 0..heads {
        // Rows of one head for every token: `nope` of its key, `value` of its value.
        let made: Vec<Vec<f64>> = (0..tokens)
            .map(|token| {
                let c = &inputs.latent[token * latent..][..latent];
                let row = |r: usize| {
                    let w = &inputs.kv_b[(head * (nope + value) + r) * latent..][..latent];
                    w.iter().zip(c).map(|(w, c)| f64::from(*w) * f64::from(*c)).sum::<f64>()
                };
                (0..nope + value).map(row).collect()
            })
            .collect();
        for token in 0..tokens {
            let q = &inputs.q[(token * heads + head) * (nope + rope)..][..nope + rope];
            let score = |t: usize| {
                let rope_key = inputs.rope_key[t * rope..][..rope].iter().map(|k| f64::from(*k));
                let key = made[t][..nope].iter().copied().chain(rope_key);
                let dot: f64 = q.iter().zip(key).map(|(q, k)| f64::from(*q) * k).sum();
                dot / ((nope + rope) as f64).sqrt()
            };
            let Softmax { weights, total, .. } = Softmax::of((0..=token).map(score).collect());
            for d in 0..value {
                let sum: f64 = weights.iter().zip(&made).map(|(w, row)| w * row[nope + d]).sum();
                out[(token * heads + head) * value + d] = sum / total;
            }
        }
    }
    out
}

/// The gated delta rule token by token: outputs `[token][value head][value_dim]` and the last
/// state `[value head][key_dim][value_dim]`.
///
/// S ← e^g·S; S ← S + k ⊗ β(v − Sᵀk); o = Sᵀq / √key_dim. Yang, Kautz and Hatamizadeh, "Gated Delta
/// Networks" (2024).
pub(super) fn gated_delta_net(inputs: &GdnInputs) -> (Vec<f64>, Vec<f64>) {
    let GdnShape { tokens, key_heads, value_heads, key_dim, value_dim } = inputs.shape;
    let mut out = vec![0.0; tokens * value_heads * value_dim];
    let mut states = vec![0.0; value_heads * key_dim * value_dim];
    for token in 0..tokens {
        for (head, state) in states.chunks_exact_mut(key_dim * value_dim).enumerate() {
            let key_head = head / (value_heads / key_heads);
            let key_row = (token * key_heads + key_head) * key_dim;
            let scalar = token * value_heads + head;
            let (q, k) = (&inputs.q[key_row..][..key_dim], &inputs.k[key_row..][..key_dim]);
            let v = &inputs.v[scalar * value_dim..][..value_dim];
            let decay = f64::from(inputs.log_decay[scalar]).exp();
            state.iter_mut().for_each(|s| *s *= decay);
            for (column, v) in v.iter().enumerate() {
                let cell = |row: usize| row * value_dim + column;
                let recalled: f64 = (0..key_dim).map(|r| state[cell(r)] * f64::from(k[r])).sum();
                let write = f64::from(inputs.beta[scalar]) * (f64::from(*v) - recalled);
                for (row, k) in k.iter().enumerate() {
                    state[cell(row)] += f64::from(*k) * write;
                }
                let read: f64 = (0..key_dim).map(|r| state[cell(r)] * f64::from(q[r])).sum();
                out[scalar * value_dim + column] = read / (key_dim as f64).sqrt();
            }
        }
    }
    (out, states)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    const VECTORS: &str = include_str!("../../../../tests/fixtures/cores.json");

    fn numbers(value: &Value) -> Vec<usize> {
        let list = value.as_array().expect("a list");
        list.iter().map(|v| v.as_u64().expect("a count") as usize).collect()
    }

    /// Rows of `out` (`width` per token, `dim` per head) against NumPy's first four of every head.
    fn compare(case: &Value, out: &[f64], width: usize, dim: usize) {
        for (row, expected) in numbers(&case["rows"]).iter().zip(case["values"].as_array().unwrap())
        {
            let row = &out[row * width..][..width];
            let found: Vec<f64> = row.chunks(dim).flat_map(|head| head[..4].to_vec()).collect();
            let expected = expected.as_array().unwrap();
            assert_eq!(found.len(), expected.len());
            for (found, expected) in found.iter().zip(expected) {
                let expected = expected.as_f64().unwrap();
                assert!((found - expected).abs() < 1e-12, "{found} is not {expected}");
            }
        }
        close(&case["sum_of_squares"], out);
    }

    fn close(expected: &Value, values: &[f64]) {
        let (sum, expected) =
            (values.iter().map(|x| x * x).sum::<f64>(), expected.as_f64().unwrap());
        assert!((sum / expected - 1.0).abs() < 1e-11, "{sum} is not {expected}");
    }

    #[test]
    fn agrees_with_numpy() {
        let vectors: Value = serde_json::from_str(VECTORS).unwrap();
        let tokens = vectors["tokens"].as_u64().unwrap() as usize;
        let mut compared = 0;
        for case in vectors["cases"].as_array().unwrap() {
            if case["core"] == "mla_attention" {
                let [heads, latent, nope, rope, value] = numbers(&case["mla"])[..] else {
                    panic!("five numbers");
                };
                let shape = LatentShape { tokens, heads, latent, nope, rope, value };
                let out = latent_attention(&LatentInputs::new(shape));
                compare(case, &out, heads * value, value);
                compared += 1;
                continue;
            }
            let heads = numbers(&case["heads"]);
            if case["core"] == "attention_core" {
                let head_dim = case["head_dim"].as_u64().unwrap() as usize;
                let [heads, kv_heads] = heads[..] else { panic!("two numbers") };
                let shape = AttentionShape { tokens, heads, kv_heads, head_dim, window: None };
                let out = attention(&AttentionInputs::new(shape));
                compare(case, &out, shape.heads * head_dim, head_dim);
            } else {
                let dims = numbers(&case["head_dim"]);
                let shape = GdnShape {
                    tokens,
                    key_heads: heads[0],
                    value_heads: heads[1],
                    key_dim: dims[0],
                    value_dim: dims[1],
                };
                let (out, states) = gated_delta_net(&GdnInputs::new(shape));
                compare(case, &out, shape.value_heads * shape.value_dim, shape.value_dim);
                close(&case["state_sum_of_squares"], &states);
            }
            compared += 1;
        }
        assert_eq!(compared, 6);
    }
}
