//! Qwen3.5-MoE: the Qwen3.5 hybrid whose feed-forwards are experts beside a shared one.

use super::tensors::EXPERTS_FUSED_FIRST;
use super::{DenseLayers, Experts, Family, Layout, Renormalise, Shared, qwen3_5::QWEN3_5};
use crate::descriptor::{Precision, SharedGate};

pub(super) const QWEN3_5_MOE: Family = Family {
    name: "qwen3_5_moe",
    layouts: &[
        Layout {
            model_type: "qwen3_5_moe",
            architectures: &["Qwen3_5MoeForConditionalGeneration"],
            ..QWEN3_5.layouts[0]
        },
        Layout {
            model_type: "qwen3_5_moe_text",
            architectures: &["Qwen3_5MoeForCausalLM"],
            ..QWEN3_5.layouts[1]
        },
    ],
    experts: Some(Experts {
        count: &["num_experts", "num_local_experts"],
        intermediate: "moe_intermediate_size",
        dense: DenseLayers::None,
        logits: Precision::Model,
        weights: Precision::Model,
        renormalise: Renormalise::Always,
        scaling: None,
        groups: false,
        shared: Shared::Width { key: "shared_expert_intermediate_size", gate: SharedGate::Sigmoid },
    }),
    tensors: EXPERTS_FUSED_FIRST,
    ..QWEN3_5
};
