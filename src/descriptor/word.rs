//! Kinds as words: one spelling for files, reports and messages.

use super::{
    Ffn, Mixer, NormStyle, OutputGate, Precision, RoleName, RopeConvention, RopeScaling, ShardRule,
    SharedGate,
};
use std::fmt;

/// A kind with a fixed spelling.
pub trait Word: Copy + Sized + 'static {
    /// Every value, in a fixed order.
    const WORDS: &'static [(Self, &'static str)];

    /// The value of a spelling.
    fn parse(text: &str) -> Option<Self> {
        Self::WORDS.iter().find(|(_, word)| *word == text).map(|(value, _)| *value)
    }
}

macro_rules! words {
    ($($kind:ident { $($variant:ident = $word:literal),+ $(,)? })+) => {$(
        impl Word for $kind {
            const WORDS: &'static [($kind, &'static str)] =
                &[$(($kind::$variant, $word)),+];
        }

        impl $kind {
            /// The spelling used in descriptors, YAML and reports.
            pub fn as_str(self) -> &'static str {
                match self {
                    $($kind::$variant => $word),+
                }
            }
        }

        impl fmt::Display for $kind {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.as_str())
            }
        }
    )+};
}

words! {
    Mixer { FullAttention = "full_attention", Mla = "mla", Gdn = "gdn" }
    Ffn { Dense = "dense", Moe = "moe" }
    Precision { Model = "model", F32 = "f32" }
    SharedGate { None = "none", Sigmoid = "sigmoid" }
    NormStyle { Plain = "plain", OnePlus = "one_plus" }
    OutputGate { None = "none", Sigmoid = "sigmoid" }
    RopeConvention { HalfSplit = "half_split", Interleaved = "interleaved" }
    ShardRule {
        None = "none",
        OutHeads = "out_heads",
        OutDim = "out_dim",
        InDim = "in_dim",
        OutExperts = "out_experts",
    }
    RoleName {
        Embed = "embed",
        LmHead = "lm_head",
        FinalNorm = "final_norm",
        InputNorm = "input_norm",
        PostNorm = "post_norm",
        AttnQ = "attn_q",
        AttnK = "attn_k",
        AttnV = "attn_v",
        AttnO = "attn_o",
        AttnQNorm = "attn_q_norm",
        AttnKNorm = "attn_k_norm",
        AttnQBias = "attn_q_bias",
        AttnKBias = "attn_k_bias",
        AttnVBias = "attn_v_bias",
        MlaQ = "mla_q",
        MlaQA = "mla_q_a",
        MlaQANorm = "mla_q_a_norm",
        MlaQB = "mla_q_b",
        MlaKvA = "mla_kv_a",
        MlaKvANorm = "mla_kv_a_norm",
        MlaKvB = "mla_kv_b",
        MlaO = "mla_o",
        GdnQkv = "gdn_qkv",
        GdnZ = "gdn_z",
        GdnA = "gdn_a",
        GdnB = "gdn_b",
        GdnConv = "gdn_conv",
        GdnDtBias = "gdn_dt_bias",
        GdnALog = "gdn_a_log",
        GdnNorm = "gdn_norm",
        GdnOut = "gdn_out",
        MlpGate = "mlp_gate",
        MlpUp = "mlp_up",
        MlpDown = "mlp_down",
        MoeRouter = "moe_router",
        MoeGate = "moe_gate",
        MoeUp = "moe_up",
        MoeDown = "moe_down",
        SharedGate = "shared_gate",
        SharedUp = "shared_up",
        SharedDown = "shared_down",
        SharedScale = "shared_scale",
    }
}

impl RopeScaling {
    /// The spelling of the kind of scaling.
    pub fn as_str(&self) -> &'static str {
        match self {
            RopeScaling::None {} => "none",
            RopeScaling::Linear { .. } => "linear",
            RopeScaling::Llama3 { .. } => "llama3",
            RopeScaling::Yarn { .. } => "yarn",
        }
    }
}
