//! The validated descriptor.

use super::Role;
use serde::{Deserialize, Serialize};

/// Everything that decides what a model computes.
///
/// Constructed by an adapter or read from canonical JSON; consistent by construction (see
/// [`Descriptor::validate`](super::Descriptor)).
#[derive(Clone, Debug, PartialEq)]
pub struct Descriptor {
    /// The adapter that derived it (`llama`, `qwen3_5`, …); informational for the engine.
    pub family: String,
    /// Width of the residual stream.
    pub hidden: usize,
    /// Rows of the embedding and of the logits.
    pub vocab: usize,
    /// Largest number of tokens of one sequence.
    pub max_position_tokens: usize,
    /// The mixer of every layer.
    pub layer_mixers: Vec<Mixer>,
    /// The feed-forward of every layer.
    pub layer_ffns: Vec<Ffn>,
    /// How norm weights act.
    pub norm_style: NormStyle,
    /// Epsilon of every RMS norm, as declared.
    pub norm_epsilon: f64,
    /// Full attention, where some layer has it.
    pub attention: Option<Attention>,
    /// Gated delta net, where some layer has it.
    pub gdn: Option<GatedDeltaNet>,
    /// Width of the dense feed-forward, where some layer has it.
    pub intermediate: Option<usize>,
    /// Token ids that end a generation.
    pub end_tokens: Vec<u32>,
    /// The logical weights.
    pub roles: Vec<Role>,
}

impl Descriptor {
    /// Number of layers.
    pub fn layers(&self) -> usize {
        self.layer_mixers.len()
    }
}

/// What mixes tokens in a layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mixer {
    FullAttention,
    Gdn,
}

/// The feed-forward of a layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ffn {
    Dense,
}

/// How an RMS norm applies its weight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum NormStyle {
    /// Normalise in FP32, round to the model dtype, then × w (BF16 rounds twice).
    Plain,
    /// Normalise and × (1 + w) in FP32, one rounding.
    OnePlus,
}

/// Grouped-query attention.
#[derive(Clone, Debug, PartialEq)]
pub struct Attention {
    pub query_heads: usize,
    pub kv_heads: usize,
    pub head_dim: usize,
    /// Per-head RMS norm of q and k before rope, in the model's norm style.
    pub qk_norm: bool,
    pub output_gate: OutputGate,
    pub rope: Rope,
}

/// A gate on the attention output, before its projection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OutputGate {
    None,
    /// q projection rows are per head `[q | gate]`; the output is × sigmoid(gate).
    Sigmoid,
}

/// Rotary position embedding.
#[derive(Clone, Debug, PartialEq)]
pub struct Rope {
    pub convention: RopeConvention,
    /// Base of the frequencies, as declared.
    pub theta: f64,
    /// Leading dimensions of a head that rotate; the frequency exponent uses this size.
    pub rotary_dim: usize,
    pub scaling: RopeScaling,
}

/// Which dimensions form a rotated pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RopeConvention {
    /// Pairs (j, j + rotary_dim/2).
    HalfSplit,
    /// Pairs (2j, 2j + 1).
    Interleaved,
}

/// Frequency scaling for long contexts; applied at every position.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum RopeScaling {
    None {},
    Llama3 {
        factor: f64,
        low_freq_factor: f64,
        high_freq_factor: f64,
        original_max_position_tokens: usize,
    },
}

/// Gated delta net (linear attention with a delta rule and a decay).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GatedDeltaNet {
    pub key_heads: usize,
    pub value_heads: usize,
    pub key_dim: usize,
    pub value_dim: usize,
    /// Taps of the causal depthwise convolution, the current token included.
    pub conv_width: usize,
}

impl GatedDeltaNet {
    /// Channels of the convolution: flat `q | k | v`.
    pub fn channels(&self) -> usize {
        2 * self.key_heads * self.key_dim + self.value_heads * self.value_dim
    }
}
