//! Llama and what shares its layout (SmolLM2, TinyLlama, …).

use super::{Family, HeadDim, Layout, Mixers, Window};
use crate::descriptor::config::{HALF_SPLIT_SCALINGS, Only, PartialRotary, RopeRule};
use crate::descriptor::{NormStyle, OutputGate, RopeConvention};

pub(super) const LLAMA: Family = Family {
    name: "llama",
    layouts: &[Layout {
        model_type: "llama",
        architectures: &["LlamaForCausalLM"],
        nested: false,
        prefixes: &["model."],
        outer_ignored: &[],
    }],
    norm_style: NormStyle::Plain,
    qk_norm: false,
    qkv_bias: false,
    output_gate: OutputGate::None,
    head_dim: HeadDim::HiddenOverHeads,
    may_omit_kv_heads: true,
    rope: RopeRule {
        convention: RopeConvention::HalfSplit,
        default_theta: Some(10_000.0),
        partial: PartialRotary::Never,
        scalings: HALF_SPLIT_SCALINGS,
        ignored: &[],
    },
    mixers: Mixers::FullAttention,
    window: Window::None,
    experts: None,
    default_tied: false,
    only: &[("mlp_bias", Only::Flag(false)), ("rope_interleaved", Only::Flag(false))],
    // A limit that a server reads (Vicuna).
    ignored: &["max_sequence_length"],
    tensors: &[],
};
