//! DeepSeek-V2 and V2-Lite: multi-head latent attention, leading dense layers, then experts beside
//! shared ones.

use super::tensors::{Stored, all};
use super::{DenseLayers, Experts, Family, Latent, Layout, Mixers, Renormalise, Shared};
use super::{llama::LLAMA, qwen3_moe::EXPERTS};
use crate::descriptor::config::{Only, RopeRule};
use crate::descriptor::{Precision, RoleName, RopeConvention, SharedGate};

pub(super) const DEEPSEEK_V2: Family = Family {
    name: "deepseek_v2",
    layouts: &[Layout {
        model_type: "deepseek_v2",
        architectures: &["DeepseekV2ForCausalLM"],
        ..LLAMA.layouts[0]
    }],
    rope: RopeRule {
        convention: RopeConvention::Interleaved,
        scalings: &["linear", "yarn"],
        ..LLAMA.rope
    },
    mixers: Mixers::Latent(Latent {
        latent: "kv_lora_rank",
        query_rank: "q_lora_rank",
        nope: "qk_nope_head_dim",
        rope: "qk_rope_head_dim",
        value: "v_head_dim",
    }),
    experts: Some(Experts {
        count: &["n_routed_experts", "num_experts", "num_local_experts"],
        dense: DenseLayers::Leading,
        logits: Precision::F32,
        weights: Precision::F32,
        renormalise: Renormalise::Never,
        scaling: Some("routed_scaling_factor"),
        groups: true,
        shared: Shared::Count { key: "n_shared_experts", gate: SharedGate::None },
        ..EXPERTS
    }),
    only: &[("mlp_bias", Only::Flag(false)), ("scoring_func", Only::Text(&["softmax"]))],
    // The code that published checkpoints bring along is the one implemented here; losses of training,
    // and how experts were spread over devices in it.
    ignored: &["auto_map", "aux_loss_alpha", "seq_aux", "ep_size"],
    tensors: &[
        (RoleName::SharedGate, SHARED_GATE),
        (RoleName::SharedUp, SHARED_UP),
        (RoleName::SharedDown, SHARED_DOWN),
    ],
    ..LLAMA
};

const SHARED_GATE: &[Stored] = &[all("mlp.shared_experts.gate_proj.weight")];
const SHARED_UP: &[Stored] = &[all("mlp.shared_experts.up_proj.weight")];
const SHARED_DOWN: &[Stored] = &[all("mlp.shared_experts.down_proj.weight")];
