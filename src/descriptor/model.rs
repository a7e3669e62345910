//! The validated descriptor.

use super::{Mla, Moe, Role};
use crate::tensor::ln64;
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
    /// Multi-head latent attention, where some layer has it.
    pub mla: Option<Mla>,
    /// Gated delta net, where some layer has it.
    pub gdn: Option<GatedDeltaNet>,
    /// Width of the dense feed-forward, where some layer has it.
    pub intermediate: Option<usize>,
    /// Mixture of experts, where some layer has it.
    pub moe: Option<Moe>,
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
    Mla,
    Gdn,
}

/// The feed-forward of a layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ffn {
    Dense,
    Moe,
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
    /// Whether the projections of q, k and v have biases.
    pub qkv_bias: bool,
    pub output_gate: OutputGate,
    /// Tokens that a query sees, its own included; `None` for all before it.
    pub window: Option<usize>,
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
    /// Every frequency is divided by `factor`.
    Linear {
        factor: f64,
    },
    Llama3 {
        factor: f64,
        low_freq_factor: f64,
        high_freq_factor: f64,
        original_max_position_tokens: usize,
    },
    /// Frequencies are divided by `factor` where they turn less than `beta_slow` times within the
    /// original context, kept where they turn more than `beta_fast` times, mixed between.
    Yarn {
        factor: f64,
        beta_fast: f64,
        beta_slow: f64,
        /// Cosines and sines are multiplied by m(mscale) / m(mscale_all_dim), where
        /// m(x) = 0.1·x·ln(factor) + 1.
        mscale: f64,
        /// See [`Mla`]; 0 where a model does not scale all dimensions.
        mscale_all_dim: f64,
        original_max_position_tokens: usize,
    },
}

impl RopeScaling {
    /// Factor on cosines and sines.
    pub fn rotary_magnitude(&self) -> f64 {
        match *self {
            RopeScaling::Yarn { factor, mscale, mscale_all_dim, .. } => {
                yarn_magnitude(factor, mscale) / yarn_magnitude(factor, mscale_all_dim)
            }
            _ => 1.0,
        }
    }

    /// Factor on query and key each, where a model applies it to all dimensions (multi-head latent
    /// attention does).
    pub fn score_magnitude(&self) -> f64 {
        match *self {
            RopeScaling::Yarn { factor, mscale_all_dim, .. } => {
                yarn_magnitude(factor, mscale_all_dim)
            }
            _ => 1.0,
        }
    }
}

/// 0.1 · mscale · ln(factor) + 1 for factors above 1 (Peng et al., "YaRN", 2023, section 3.4).
fn yarn_magnitude(factor: f64, mscale: f64) -> f64 {
    if factor <= 1.0 { 1.0 } else { 0.1 * mscale * ln64(factor) + 1.0 }
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
