//! Mixtral: a mixture of experts in every layer, its weights under names of their own.

use super::tensors::{Stored, all};
use super::{DenseLayers, Experts, Family, HeadDim, Layout, Mixers, Renormalise, Shared, Window};
use crate::descriptor::config::{HALF_SPLIT_SCALINGS, PartialRotary, RopeRule};
use crate::descriptor::{NormStyle, OutputGate, Precision, RoleName, RopeConvention};

pub(super) const MIXTRAL: Family = Family {
    name: "mixtral",
    layouts: &[Layout {
        model_type: "mixtral",
        architectures: &["MixtralForCausalLM"],
        nested: false,
        prefixes: &["model."],
        outer_ignored: &[],
    }],
    norm_style: NormStyle::Plain,
    qk_norm: false,
    qkv_bias: false,
    output_gate: OutputGate::None,
    head_dim: HeadDim::HiddenOverHeads,
    rope: RopeRule {
        convention: RopeConvention::HalfSplit,
        default_theta: Some(1_000_000.0),
        partial: PartialRotary::Never,
        scalings: HALF_SPLIT_SCALINGS,
        ignored: &[],
    },
    mixers: Mixers::FullAttention,
    window: Window::Every { absent: None },
    experts: Some(Experts {
        count: &["num_local_experts", "num_experts"],
        intermediate: "intermediate_size",
        dense: DenseLayers::None,
        logits: Precision::Model,
        weights: Precision::F32,
        renormalise: Renormalise::Always,
        scaling: None,
        groups: false,
        shared: Shared::None,
    }),
    default_tied: false,
    only: &[],
    // Noise on the router's input in training.
    ignored: &["router_jitter_noise"],
    tensors: &[
        (RoleName::MoeRouter, ROUTER),
        (RoleName::MoeGate, W1),
        (RoleName::MoeUp, W3),
        (RoleName::MoeDown, W2),
    ],
};

const ROUTER: &[Stored] = &[all("block_sparse_moe.gate.weight")];
const W1: &[Stored] = &[all("block_sparse_moe.experts.{expert}.w1.weight")];
const W2: &[Stored] = &[all("block_sparse_moe.experts.{expert}.w2.weight")];
const W3: &[Stored] = &[all("block_sparse_moe.experts.{expert}.w3.weight")];
