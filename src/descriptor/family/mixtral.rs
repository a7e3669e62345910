//! Mixtral: Llama's layers with a mixture of experts in each, its weights under names of their own.

use super::tensors::{Stored, all};
use super::{DenseLayers, Experts, Family, Layout, Renormalise, Window};
use super::{llama::LLAMA, qwen3_moe::EXPERTS};
use crate::descriptor::config::RopeRule;
use crate::descriptor::{Precision, RoleName};

pub(super) const MIXTRAL: Family = Family {
    name: "mixtral",
    layouts: &[Layout {
        model_type: "mixtral",
        architectures: &["MixtralForCausalLM"],
        ..LLAMA.layouts[0]
    }],
    may_omit_kv_heads: false,
    rope: RopeRule { default_theta: Some(1_000_000.0), ..LLAMA.rope },
    window: Window::Every { absent: None },
    experts: Some(Experts {
        count: &["num_local_experts", "num_experts"],
        intermediate: "intermediate_size",
        dense: DenseLayers::None,
        weights: Precision::F32,
        renormalise: Renormalise::Always,
        ..EXPERTS
    }),
    only: &[],
    // Noise on the router's input in training.
    ignored: &["router_jitter_noise"],
    tensors: &[
        (RoleName::MoeRouter, ROUTER),
        (RoleName::MoeGate, W1),
        (RoleName::MoeUp, W3),
        (RoleName::MoeDown, W2),
    ],
    ..LLAMA
};

const ROUTER: &[Stored] = &[all("block_sparse_moe.gate.weight")];
const W1: &[Stored] = &[all("block_sparse_moe.experts.{expert}.w1.weight")];
const W2: &[Stored] = &[all("block_sparse_moe.experts.{expert}.w2.weight")];
const W3: &[Stored] = &[all("block_sparse_moe.experts.{expert}.w3.weight")];
