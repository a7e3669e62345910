#!/usr/bin/env python3
"""FP64 values of the attention core, the latent-attention core and the gated-delta-net core, by NumPy.

    python scripts/make_core_vectors.py > tests/fixtures/cores.json

The gate kind `core_reference` computes the cores in FP64 in Rust and compares the engine with
that at every position; its tests compare the Rust with these values, which this script computes
from the definitions by other means (whole matrices instead of loops, einsum instead of sums).
Inputs come from SplitMix64 words, so that they need not be stored.
"""

import json

import numpy as np

MASK = (1 << 64) - 1
TOKENS = 1000
ROWS = [0, 1, 63, 64, 65, 255, 256, 511, 512, 999]


def grid(seed, *shape):
    """Multiples of 1/128 in [-1, 1), exact in BF16: the top byte of successive SplitMix64 words."""
    count = int(np.prod(shape))
    states = (np.arange(1, count + 1, dtype=object) * 0x9E3779B97F4A7C15 + seed) & MASK
    z = states.astype(np.uint64)
    with np.errstate(over="ignore"):
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    z ^= z >> np.uint64(31)
    return ((z >> np.uint64(56)).astype(np.float64) / 128 - 1).reshape(shape)


def attention(heads, kv_heads, head_dim):
    """Causal softmax(q kᵀ / √d) v; query head h reads key head h // (heads / kv_heads)."""
    q = grid(1, TOKENS, heads, head_dim) * 8
    k = grid(2, TOKENS, kv_heads, head_dim)
    v = grid(3, TOKENS, kv_heads, head_dim)
    k, v = (np.repeat(x, heads // kv_heads, axis=1) for x in (k, v))
    scores = np.einsum("ihd,jhd->hij", q, k) / np.sqrt(head_dim)
    scores = np.where(np.tril(np.ones((TOKENS, TOKENS), bool)), scores, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    return np.einsum("hij,jhd->ihd", weights, v)


def latent_attention(heads, latent, nope, rope, value):
    """k = [W_k c | rope key], v = W_v c, causal softmax(q kᵀ / √(nope + rope)) v."""
    q = grid(1, TOKENS, heads, nope + rope) * 2
    rope_key = grid(2, TOKENS, rope)
    c = grid(3, TOKENS, latent)
    made = np.einsum("hrl,tl->thr", grid(4, heads, nope + value, latent) / 2, c)
    scores = np.einsum("ihd,jhd->hij", q[..., :nope], made[..., :nope])
    scores = (scores + np.einsum("ihd,jd->hij", q[..., nope:], rope_key)) / np.sqrt(nope + rope)
    scores = np.where(np.tril(np.ones((TOKENS, TOKENS), bool)), scores, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    return np.einsum("hij,jhd->ihd", weights, made[..., nope:])


def gated_delta_net(key_heads, value_heads, key_dim, value_dim):
    """S ← e^g S; S ← S + k βᵀ(v − Sᵀk); o = Sᵀ q / √dk; value head h reads key head h // r."""
    q = grid(1, TOKENS, key_heads, key_dim)
    k = grid(2, TOKENS, key_heads, key_dim) / 4
    v = grid(3, TOKENS, value_heads, value_dim)
    g = -(grid(4, TOKENS, value_heads) + 1) / 16
    beta = (grid(5, TOKENS, value_heads) + 1) / 2
    q, k = (np.repeat(x, value_heads // key_heads, axis=1) for x in (q, k))
    state = np.zeros((value_heads, key_dim, value_dim))
    out = np.empty((TOKENS, value_heads, value_dim))
    for t in range(TOKENS):
        state *= np.exp(g[t])[:, None, None]
        error = v[t] - np.einsum("hkv,hk->hv", state, k[t])
        state += np.einsum("hk,hv->hkv", k[t], beta[t][:, None] * error)
        out[t] = np.einsum("hkv,hk->hv", state, q[t]) / np.sqrt(key_dim)
    return out, state


def spot(out):
    """Some rows of every head, and the sum of squares over everything."""
    return {"rows": ROWS, "values": [[float(x) for x in out[r, :, :4].ravel()] for r in ROWS],
            "sum_of_squares": float((out ** 2).sum())}


def main():
    cases = []
    for heads, kv_heads, head_dim in [(4, 2, 64), (3, 1, 48)]:
        out = attention(heads, kv_heads, head_dim)
        cases.append({"core": "attention_core", "heads": [heads, kv_heads],
                      "head_dim": head_dim, **spot(out)})
    for mla in [(4, 32, 32, 16, 32), (2, 128, 16, 8, 24)]:
        cases.append({"core": "mla_attention", "mla": mla, **spot(latent_attention(*mla))})
    for key_heads, value_heads, key_dim, value_dim in [(2, 6, 16, 16), (1, 2, 32, 64)]:
        out, state = gated_delta_net(key_heads, value_heads, key_dim, value_dim)
        cases.append({"core": "gdn_core", "heads": [key_heads, value_heads],
                      "head_dim": [key_dim, value_dim], **spot(out),
                      "state_sum_of_squares": float((state ** 2).sum())})
    lines = ",\n  ".join(json.dumps(case) for case in cases)
    print(f'{{\n "tokens": {TOKENS},\n "numpy": "{np.__version__}",\n "cases": [\n  {lines}\n ]\n}}')


if __name__ == "__main__":
    main()
