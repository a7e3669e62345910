//! What an adapter is made of, and the list of all.

use super::tensors::Stored;
use super::{
    deepseek_v2, llama, mistral, mixtral, qwen2, qwen3, qwen3_5, qwen3_5_moe, qwen3_moe, qwen3_next,
};
use crate::descriptor::config::{Only, RopeRule};
use crate::descriptor::{NormStyle, OutputGate, Precision, RoleName, SharedGate};

/// Every family that can be loaded.
pub(super) const FAMILIES: &[&Family] = &[
    &deepseek_v2::DEEPSEEK_V2,
    &llama::LLAMA,
    &mistral::MISTRAL,
    &mixtral::MIXTRAL,
    &qwen2::QWEN2,
    &qwen3::QWEN3,
    &qwen3_5::QWEN3_5,
    &qwen3_5_moe::QWEN3_5_MOE,
    &qwen3_moe::QWEN3_MOE,
    &qwen3_next::QWEN3_NEXT,
];

/// A model family: the table of its differences.
#[derive(Debug)]
pub(super) struct Family {
    pub name: &'static str,
    /// The `model_type` values it is published under.
    pub layouts: &'static [Layout],
    pub norm_style: NormStyle,
    pub qk_norm: bool,
    /// Whether q, k and v have biases.
    pub qkv_bias: bool,
    pub output_gate: OutputGate,
    pub head_dim: HeadDim,
    /// Whether `num_key_value_heads` may be absent for as many as query heads. Published implementations of
    /// the other families take a number of their own then; null means as many for all.
    pub may_omit_kv_heads: bool,
    pub rope: RopeRule,
    pub mixers: Mixers,
    pub window: Window,
    /// Mixture of experts, where the family has one.
    pub experts: Option<Experts>,
    /// `tie_word_embeddings` where the config does not say.
    pub default_tied: bool,
    /// Fields of which one value is implemented.
    pub only: &'static [(&'static str, Only)],
    /// Keys without effect on the arithmetic, beside the ones ignored everywhere.
    pub ignored: &'static [&'static str],
    /// Where roles lie other than in the usual places; see [`Stored`].
    pub tensors: &'static [(RoleName, &'static [Stored])],
}

/// One published form of a family.
#[derive(Debug)]
pub(super) struct Layout {
    pub model_type: &'static str,
    /// Model classes whose forward pass is the one implemented.
    pub architectures: &'static [&'static str],
    /// Whether the dimensions stand in `text_config`.
    pub nested: bool,
    /// Prefixes of the tensor names; the first where no tensor index says otherwise.
    pub prefixes: &'static [&'static str],
    /// Keys of the outer object without effect on text.
    pub outer_ignored: &'static [&'static str],
}

/// `head_dim` where the config does not say.
#[derive(Clone, Copy, Debug)]
pub(super) enum HeadDim {
    /// `hidden_size / num_attention_heads`, which must divide.
    HiddenOverHeads,
    /// This many.
    Default(usize),
    /// The key is required.
    Required,
}

/// Which mixer each layer has.
#[derive(Clone, Copy, Debug)]
pub(super) enum Mixers {
    /// Full attention throughout.
    FullAttention,
    /// `layer_types`, or full attention in every `full_attention_interval`-th layer.
    Hybrid(Gdn),
    /// Multi-head latent attention throughout.
    Latent(Latent),
}

/// Whether attention may be limited to a window of tokens.
#[derive(Clone, Copy, Debug)]
pub(super) enum Window {
    /// Never: a config with a window is refused.
    None,
    /// `sliding_window` in every layer; null for none, and this where the key is absent.
    Every { absent: Option<usize> },
    /// `sliding_window` where `use_sliding_window` is true: in the layers that `layer_types` names or
    /// else from `max_window_layers` on, which is this where the key is absent; or in every layer.
    Switched { from_layer: Option<usize> },
}

/// The keys that give the dimensions of multi-head latent attention.
#[derive(Clone, Copy, Debug)]
pub(super) struct Latent {
    pub latent: &'static str,
    pub query_rank: &'static str,
    pub nope: &'static str,
    pub rope: &'static str,
    pub value: &'static str,
}

/// The keys that give the dimensions of a gated delta net.
#[derive(Clone, Copy, Debug)]
pub(super) struct Gdn {
    pub key_heads: &'static str,
    pub value_heads: &'static str,
    pub key_dim: &'static str,
    pub value_dim: &'static str,
    pub conv_width: &'static str,
}

/// The usual keys.
pub(super) const LINEAR_ATTENTION: Gdn = Gdn {
    key_heads: "linear_num_key_heads",
    value_heads: "linear_num_value_heads",
    key_dim: "linear_key_head_dim",
    value_dim: "linear_value_head_dim",
    conv_width: "linear_conv_kernel_dim",
};

/// The keys and rules of a mixture of experts.
#[derive(Clone, Copy, Debug)]
pub(super) struct Experts {
    /// The key that counts them, under each of its spellings.
    pub count: &'static [&'static str],
    /// The key of one expert's width.
    pub intermediate: &'static str,
    pub dense: DenseLayers,
    pub logits: Precision,
    pub weights: Precision,
    pub renormalise: Renormalise,
    /// The key of a factor on the weights.
    pub scaling: Option<&'static str>,
    /// Whether `topk_method` may limit the choice to `topk_group` of `n_group` groups.
    pub groups: bool,
    pub shared: Shared,
}

/// Which layers of a family with experts are dense.
#[derive(Clone, Copy, Debug)]
pub(super) enum DenseLayers {
    None,
    /// Those that `mlp_only_layers` lists and those between every `decoder_sparse_step`-th.
    ListedOrStepped,
    /// The first `first_k_dense_replace`, and after them all but every `moe_layer_freq`-th.
    Leading,
}

/// Whether the weights of the chosen experts are divided by their sum.
#[derive(Clone, Copy, Debug)]
pub(super) enum Renormalise {
    Always,
    Never,
    /// As `norm_topk_prob` says.
    Flag {
        default: bool,
    },
}

/// A feed-forward beside the experts.
#[derive(Clone, Copy, Debug)]
pub(super) enum Shared {
    None,
    /// Of this width.
    Width {
        key: &'static str,
        gate: SharedGate,
    },
    /// As wide as this many experts; 0 or null for none.
    Count {
        key: &'static str,
        gate: SharedGate,
    },
}
