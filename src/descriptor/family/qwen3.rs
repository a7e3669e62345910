//! Qwen3, dense: Llama's layers with a norm of every query and key head.

use super::{Family, HeadDim, Layout, Mixers, Window};
use crate::descriptor::config::{HALF_SPLIT_SCALINGS, PartialRotary, RopeRule};
use crate::descriptor::{NormStyle, OutputGate, RopeConvention};

pub(super) const QWEN3: Family = Family {
    name: "qwen3",
    layouts: &[Layout {
        model_type: "qwen3",
        architectures: &["Qwen3ForCausalLM"],
        nested: false,
        prefixes: &["model."],
        outer_ignored: &[],
    }],
    norm_style: NormStyle::Plain,
    qk_norm: true,
    qkv_bias: false,
    output_gate: OutputGate::None,
    // Not hidden / heads: 2560 / 32 would be 80 in the 4B model, whose heads have 128.
    head_dim: HeadDim::Default(128),
    rope: RopeRule {
        convention: RopeConvention::HalfSplit,
        default_theta: Some(10_000.0),
        partial: PartialRotary::Never,
        scalings: HALF_SPLIT_SCALINGS,
        ignored: &[],
    },
    mixers: Mixers::FullAttention,
    window: Window::Switched { from_layer: Some(28) },
    experts: None,
    default_tied: false,
    only: &[],
    ignored: &[],
    tensors: &[],
};
