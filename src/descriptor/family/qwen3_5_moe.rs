//! Qwen3.5-MoE: the Qwen3.5 hybrid whose feed-forwards are experts beside a shared one.

use super::tensors::EXPERTS_FUSED_FIRST;
use super::{DenseLayers, Experts, Family, Layout, Renormalise};
use super::{qwen3_5::QWEN3_5, qwen3_moe::EXPERTS, qwen3_next::GATED_SHARED};

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
        dense: DenseLayers::None,
        renormalise: Renormalise::Always,
        shared: GATED_SHARED,
        ..EXPERTS
    }),
    tensors: EXPERTS_FUSED_FIRST,
    ..QWEN3_5
};
