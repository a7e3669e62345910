//! Qwen3-Next: the layers of Qwen3.5 with experts beside a shared one.
//! Its projections are fused and interleaved by key head.

use super::tensors::{Stored, blocks};
use super::{Experts, Family, Layout, Renormalise, Shared};
use super::{llama::LLAMA, qwen3_5::QWEN3_5, qwen3_moe::EXPERTS};
use crate::descriptor::config::RopeRule;
use crate::descriptor::{RoleName, SharedGate};

pub(super) const QWEN3_NEXT: Family = Family {
    name: "qwen3_next",
    layouts: &[Layout {
        model_type: "qwen3_next",
        architectures: &["Qwen3NextForCausalLM"],
        ..LLAMA.layouts[0]
    }],
    rope: RopeRule { default_theta: Some(10_000.0), ignored: &[], ..QWEN3_5.rope },
    experts: Some(Experts {
        renormalise: Renormalise::Flag { default: true },
        shared: GATED_SHARED,
        ..EXPERTS
    }),
    only: &[],
    // Multi-token prediction is an extra layer beside the forward pass.
    ignored: &["num_nextn_predict_layers"],
    tensors: &[
        (RoleName::GdnQkv, QKV),
        (RoleName::GdnZ, Z),
        (RoleName::GdnB, B),
        (RoleName::GdnA, A),
    ],
    ..QWEN3_5
};

pub(super) const GATED_SHARED: Shared =
    Shared::Width { key: "shared_expert_intermediate_size", gate: SharedGate::Sigmoid };

/// Rows per key head: q, k, the v of its value heads, their z.
const QKVZ: &str = "linear_attn.in_proj_qkvz.weight";
/// Rows per key head: the b of its value heads, their a.
const BA: &str = "linear_attn.in_proj_ba.weight";
const PER_KEY_HEAD: &str = "2*gdn_key_dim+2*gdn_heads_per_key*gdn_value_dim";
const VALUES: &str = "gdn_heads_per_key*gdn_value_dim";

const QKV: &[Stored] =
    &[qkvz("0", "gdn_key_dim"), qkvz("gdn_key_dim", "gdn_key_dim"), qkvz("2*gdn_key_dim", VALUES)];
const Z: &[Stored] = &[qkvz("2*gdn_key_dim+gdn_heads_per_key*gdn_value_dim", VALUES)];
const B: &[Stored] = &[ba("0")];
const A: &[Stored] = &[ba("gdn_heads_per_key")];

const fn qkvz(start: &'static str, block: &'static str) -> Stored {
    blocks(QKVZ, start, block, PER_KEY_HEAD, "gdn_key_heads")
}

const fn ba(start: &'static str) -> Stored {
    blocks(BA, start, "gdn_heads_per_key", "2*gdn_heads_per_key", "gdn_key_heads")
}
