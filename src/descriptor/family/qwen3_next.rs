//! Qwen3-Next: gated delta nets with gated full attention between, and experts beside a shared one.
//! Its projections are fused and interleaved by key head.

use super::tensors::{Stored, blocks};
use super::{
    DenseLayers, Experts, Family, HeadDim, LINEAR_ATTENTION, Layout, Mixers, Renormalise, Shared,
    Window,
};
use crate::descriptor::config::{HALF_SPLIT_SCALINGS, PartialRotary, RopeRule};
use crate::descriptor::{NormStyle, OutputGate, Precision, RoleName, RopeConvention, SharedGate};

pub(super) const QWEN3_NEXT: Family = Family {
    name: "qwen3_next",
    layouts: &[Layout {
        model_type: "qwen3_next",
        architectures: &["Qwen3NextForCausalLM"],
        nested: false,
        prefixes: &["model."],
        outer_ignored: &[],
    }],
    norm_style: NormStyle::OnePlus,
    qk_norm: true,
    qkv_bias: false,
    output_gate: OutputGate::Sigmoid,
    head_dim: HeadDim::Required,
    rope: RopeRule {
        convention: RopeConvention::HalfSplit,
        default_theta: Some(10_000.0),
        partial: PartialRotary::Required,
        scalings: HALF_SPLIT_SCALINGS,
        ignored: &[],
    },
    mixers: Mixers::Hybrid(LINEAR_ATTENTION),
    window: Window::None,
    experts: Some(Experts {
        count: &["num_experts", "num_local_experts"],
        intermediate: "moe_intermediate_size",
        dense: DenseLayers::ListedOrStepped,
        logits: Precision::Model,
        weights: Precision::Model,
        renormalise: Renormalise::Flag { default: true },
        scaling: None,
        groups: false,
        shared: Shared::Width { key: "shared_expert_intermediate_size", gate: SharedGate::Sigmoid },
    }),
    default_tied: false,
    only: &[],
    // Multi-token prediction is an extra layer beside the forward pass.
    ignored: &["num_nextn_predict_layers"],
    tensors: &[
        (RoleName::GdnQkv, QKV),
        (RoleName::GdnZ, Z),
        (RoleName::GdnB, B),
        (RoleName::GdnA, A),
    ],
};

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
