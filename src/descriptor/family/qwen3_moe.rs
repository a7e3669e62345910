//! Qwen3-MoE: Qwen3 whose feed-forwards are mixtures of experts.

use super::{
    DenseLayers, Experts, Family, HeadDim, Layout, Renormalise, Shared, Window, qwen3::QWEN3,
};
use crate::descriptor::Precision;

pub(super) const QWEN3_MOE: Family = Family {
    name: "qwen3_moe",
    layouts: &[Layout {
        model_type: "qwen3_moe",
        architectures: &["Qwen3MoeForCausalLM"],
        ..QWEN3.layouts[0]
    }],
    // Unlike the dense models, whose configs may leave it out.
    head_dim: HeadDim::HiddenOverHeads,
    window: Window::Switched { from_layer: None },
    experts: Some(EXPERTS),
    ..QWEN3
};

pub(super) const EXPERTS: Experts = Experts {
    count: &["num_experts", "num_local_experts"],
    intermediate: "moe_intermediate_size",
    dense: DenseLayers::ListedOrStepped,
    logits: Precision::Model,
    weights: Precision::Model,
    renormalise: Renormalise::Flag { default: false },
    scaling: None,
    groups: false,
    shared: Shared::None,
};
