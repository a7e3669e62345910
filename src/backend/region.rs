//! Regions: the operations of a forward that have their own entry point, rounding boundaries and
//! state.

use serde::{Deserialize, Serialize};
use std::fmt;

macro_rules! regions {
    ($($(#[$doc:meta])* $variant:ident = $name:literal,)*) => {
        /// One operation of the forward, as `gates/region-inventory.yaml` lists it.
        #[derive(
            Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, schemars::JsonSchema,
        )]
        #[serde(rename_all = "snake_case")]
        pub enum Region { $($(#[$doc])* #[serde(rename = $name)] $variant,)* }

        impl Region {
            /// Every region compiled into this engine: the registry that the inventory file is
            /// checked against.
            pub const ALL: &'static [Region] = &[$(Region::$variant),*];

            /// The snake_case name used in files, kernels, YAML and reports.
            pub fn name(self) -> &'static str {
                match self { $(Region::$variant => $name),* }
            }
        }
    };
}

regions! {
    /// Rows of the embedding matrix.
    Embedding = "embedding",
    /// RMS norm of a row.
    RmsNorm = "rms_norm",
    /// RMS norm of every head of a row.
    PerHeadNorm = "per_head_norm",
    /// Matrix product, output rounded to the model dtype.
    Gemm = "gemm",
    /// Matrix product with FP32 output (LM head).
    GemmF32 = "gemm_f32",
    /// Residual + sublayer output.
    ResidualAdd = "residual_add",
    /// Splits per-head `[q | gate]` rows.
    QGateSplit = "q_gate_split",
    /// Rotary position embedding.
    Rope = "rope",
    /// Appends keys and values to the cache.
    KvWrite = "kv_write",
    /// Softmax attention over cached keys.
    AttentionCore = "attention_core",
    /// Attention output × sigmoid(gate).
    AttentionOutputGate = "attention_output_gate",
    /// Adds the bias of a projection.
    BiasAdd = "bias_add",
    /// Norm of the latent beside its rope key.
    MlaLatentNorm = "mla_latent_norm",
    /// Attention over cached latents, absorbed.
    MlaAttention = "mla_attention",
    /// Causal depthwise convolution.
    GdnConv1d = "gdn_conv1d",
    /// SiLU of the convolution.
    GdnConvSilu = "gdn_conv_silu",
    /// L2 norm of q and k, decay and beta.
    GdnPrepare = "gdn_prepare",
    /// The gated delta rule on the open group.
    GdnCore = "gdn_core",
    /// Advances the boundary state when a group is full.
    GdnCommit = "gdn_commit",
    /// Per-head norm × silu(z).
    GdnGatedNorm = "gdn_gated_norm",
    /// silu(gate) × up.
    SiluMul = "silu_mul",
    /// Both projections of a dense FFN and silu(gate) × up: `gemm`, `gemm` and `silu_mul` in one.
    GateUp = "gate_up",
    /// `residual_add` and the `rms_norm` that follows it.
    ResidualNorm = "residual_norm",
    /// A router's norm and product, in FP32.
    MoeRouterLogits = "moe_router_logits",
    /// Softmax over a router's logits, the largest few, their weights.
    MoeRouter = "moe_router",
    /// Gathers rows by expert.
    MoePermute = "moe_permute",
    /// The gated feed-forward of every expert over its rows.
    MoeExperts = "moe_experts",
    /// Weighted sum of the experts of a row.
    MoeCombine = "moe_combine",
    /// Adds the shared expert.
    MoeShared = "moe_shared",
    /// Adds what ranks have of a row.
    AllReduce = "all_reduce",
    /// Puts columns of several ranks side by side.
    AllGather = "all_gather",
    /// Hands rows from one stage of layers to the next.
    StageTransfer = "stage_transfer",
    /// log p over a row of logits.
    LogSoftmax = "log_softmax",
    /// FP64 sampler.
    Sampler = "sampler",
}

impl fmt::Display for Region {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
