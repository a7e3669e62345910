//! What an adapter is made of, and the list of all.

use super::{llama, qwen3, qwen3_5};
use crate::descriptor::config::{Only, RopeRule};
use crate::descriptor::{NormStyle, OutputGate, RoleName};

/// Every family that can be loaded.
pub(super) const FAMILIES: &[&Family] = &[&llama::LLAMA, &qwen3::QWEN3, &qwen3_5::QWEN3_5];

/// A model family: the table of its differences.
#[derive(Debug)]
pub(super) struct Family {
    pub name: &'static str,
    /// The `model_type` values it is published under.
    pub layouts: &'static [Layout],
    pub norm_style: NormStyle,
    pub qk_norm: bool,
    pub output_gate: OutputGate,
    pub head_dim: HeadDim,
    pub rope: RopeRule,
    pub mixers: Mixers,
    /// `tie_word_embeddings` where the config does not say.
    pub default_tied: bool,
    /// Fields of which one value is implemented.
    pub only: &'static [(&'static str, Only)],
    /// Keys without effect on the arithmetic, beside the ones ignored everywhere.
    pub ignored: &'static [&'static str],
    /// Tensor names other than the usual ones, without the prefix.
    pub tensors: &'static [(RoleName, &'static str)],
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
