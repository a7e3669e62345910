//! Lowers multi-head latent attention.

use super::lower::Lowering;
use crate::backend::{CacheKind, CacheSpec, NormWeight, OpKind, WeightRef};
use crate::descriptor::{MLA_NORM_EPSILON, Mla, NormStyle, RoleName};

impl Lowering<'_> {
    pub(super) fn mla(&mut self, layer: usize, m: &Mla) {
        let at = Some(layer);
        let (heads, nope, rope) = (m.heads, m.nope_dim, m.rope.rotary_dim);
        let norm = |role| NormWeight {
            weight: WeightRef { role, layer: at },
            style: NormStyle::Plain,
            epsilon: MLA_NORM_EPSILON as f32,
        };
        let q = self.buffer("mla_q", heads * (nope + rope));
        match m.query_rank {
            None => self.gemm(layer, RoleName::MlaQ, self.normed, q),
            Some(rank) => {
                let raw = self.buffer("mla_q_a", rank);
                let normed = self.buffer("mla_q_a_norm", rank);
                self.gemm(layer, RoleName::MlaQA, self.normed, raw);
                let kind = OpKind::RmsNorm { x: raw, norm: norm(RoleName::MlaQANorm), out: normed };
                self.push(at, kind, &[("mla_q_a_norm.out", normed)]);
                self.gemm(layer, RoleName::MlaQB, normed, q);
            }
        }
        let kv = self.buffer("mla_kv_a", m.latent_dim + rope);
        let latent = self.buffer("mla_latent", m.latent_dim);
        let rope_key = self.buffer("mla_rope_key", rope);
        self.gemm(layer, RoleName::MlaKvA, self.normed, kv);
        let norm = norm(RoleName::MlaKvANorm);
        let taps = [("mla_latent_norm.latent", latent), ("mla_latent_norm.rope_key", rope_key)];
        self.push(at, OpKind::MlaLatentNorm { x: kv, norm, latent, rope_key }, &taps);
        self.rope(layer, "rope.q", q, [heads, nope + rope, nope]);
        self.rope(layer, "rope.k", rope_key, [1, rope, 0]);
        let slot = self.attention_slots.len();
        let spec = CacheSpec {
            layer,
            kv_heads: 1,
            head_dim: rope,
            value_dim: m.latent_dim,
            kind: CacheKind::Latent,
        };
        self.attention_slots.push(spec);
        self.push(at, OpKind::KvWrite { k: rope_key, v: latent, slot }, &[]);
        let out = self.buffer("mla_out", heads * m.value_dim);
        let kv_b = WeightRef { role: RoleName::MlaKvB, layer: at };
        let scale = m.score_scale() as f32;
        let kind = OpKind::MlaAttention { q, slot, heads, nope, kv_b, scale, out };
        self.push(at, kind, &[("mla_attention.out", out)]);
        self.gemm(layer, RoleName::MlaO, out, self.sublayer);
    }
}
