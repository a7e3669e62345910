//! The execution plan: the one place that knows the order of operations.
//!
//! A flat list of ops over named row buffers. The engine lowers a descriptor to it; backends walk
//! it; fusions rewrite it; taps are its edges; the manifest prints its bindings.

use super::{CacheSpec, ExpertSpan, GdnSpec, RankGroup, Region};
use crate::descriptor::{NormStyle, RoleName, Rope, Router};
use std::collections::BTreeSet;

/// Index of a row buffer of the plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Buf(pub usize);

/// A row buffer: one row of `width` values per token of a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BufferSpec {
    pub name: String,
    pub width: usize,
}

/// A logical weight, named by role and layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct WeightRef {
    pub role: RoleName,
    pub layer: Option<usize>,
}

/// A norm weight and how it acts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NormWeight {
    pub weight: WeightRef,
    pub style: NormStyle,
    pub epsilon: f32,
}

/// One operation of the plan.
#[derive(Clone, Debug, PartialEq)]
pub struct Op {
    pub kind: OpKind,
    /// The layer it belongs to, if any.
    pub layer: Option<usize>,
    /// Names under which a buffer can be captured once the operation is done.
    pub taps: Vec<(String, Buf)>,
}

/// What an operation does. Buffers named `out` are written, others only read unless documented.
#[derive(Clone, Debug, PartialEq)]
pub enum OpKind {
    Embedding {
        weight: WeightRef,
        out: Buf,
    },
    RmsNorm {
        x: Buf,
        norm: NormWeight,
        out: Buf,
    },
    /// In place.
    PerHeadNorm {
        x: Buf,
        heads: usize,
        head_dim: usize,
        norm: NormWeight,
    },
    Gemm {
        x: Buf,
        weight: WeightRef,
        out: Buf,
    },
    /// `residual` += `x`, in place.
    ResidualAdd {
        residual: Buf,
        x: Buf,
    },
    QGateSplit {
        x: Buf,
        heads: usize,
        head_dim: usize,
        q: Buf,
        gate: Buf,
    },
    /// In place: the dimensions of every head from `offset` on rotate, as many as the plan's rope says.
    Rope {
        x: Buf,
        heads: usize,
        head_dim: usize,
        offset: usize,
    },
    /// `x` += bias, in place; rounds what `gemm_f32` left in FP32.
    BiasAdd {
        x: Buf,
        bias: WeightRef,
    },
    /// Splits `x` into a latent, normalised, and a rope key, copied.
    MlaLatentNorm {
        x: Buf,
        norm: NormWeight,
        latent: Buf,
        rope_key: Buf,
    },
    /// Attention of queries (per head `nope` dimensions, then the rotated ones) over the latents and
    /// rope keys of `slot`.
    MlaAttention {
        q: Buf,
        slot: usize,
        heads: usize,
        nope: usize,
        kv_b: WeightRef,
        scale: f32,
        out: Buf,
    },
    KvWrite {
        k: Buf,
        v: Buf,
        slot: usize,
    },
    /// `log_sums`, where a buffer is given: ln Σ exp(score) of every head, FP32 (what a backward
    /// pass starts from). It changes no bit of `out`.
    AttentionCore {
        q: Buf,
        slot: usize,
        heads: usize,
        out: Buf,
        log_sums: Option<Buf>,
    },
    /// In place on `x`.
    AttentionOutputGate {
        x: Buf,
        gate: Buf,
    },
    /// Reads and appends the convolution history of `slot`.
    GdnConv1d {
        x: Buf,
        weight: WeightRef,
        slot: usize,
        out: Buf,
    },
    /// In place.
    GdnConvSilu {
        x: Buf,
    },
    /// Splits `qkv` and normalises: unit q and k rows, value rows, log decay and beta.
    GdnPrepare {
        slot: usize,
        qkv: Buf,
        a: Buf,
        b: Buf,
        a_log: WeightRef,
        dt_bias: WeightRef,
        q: Buf,
        k: Buf,
        v: Buf,
        log_decay: Buf,
        beta: Buf,
    },
    /// Rows of the open group against the boundary state of `slot`; appends them.
    GdnCore {
        q: Buf,
        k: Buf,
        v: Buf,
        log_decay: Buf,
        beta: Buf,
        slot: usize,
        out: Buf,
    },
    /// In place on `x`.
    GdnGatedNorm {
        x: Buf,
        z: Buf,
        norm: NormWeight,
    },
    SiluMul {
        gate: Buf,
        up: Buf,
        out: Buf,
    },
    /// `Gemm` by `gate` and by `up`, then `SiluMul`: the same values, rounded at the same places, with
    /// neither product stored.
    GateUp {
        x: Buf,
        gate: WeightRef,
        up: WeightRef,
        out: Buf,
    },
    /// `ResidualAdd`, then `RmsNorm` of the rounded sum: `residual` += `x` in place, `out` its norm.
    ResidualNorm {
        residual: Buf,
        x: Buf,
        norm: NormWeight,
        out: Buf,
    },
    /// The router's logits of every expert, in FP32 from the residual stream `x` on: its norm, which is not
    /// rounded (`normed` is scratch for it), times the router's weight.
    MoeRouterLogits {
        x: Buf,
        norm: NormWeight,
        weight: WeightRef,
        normed: Buf,
        out: Buf,
    },
    /// Chooses experts from the router's `logits` (one for each expert): their ids, exact in FP32,
    /// and their weights, by falling weight.
    MoeRouter {
        logits: Buf,
        router: Router,
        index: Buf,
        weights: Buf,
    },
    /// Gathers rows of `x` in the order of (expert, row), for the experts that are here: `out` has
    /// `experts_per_token` rows as wide as `x` for every row, those that are not needed at the end.
    MoePermute {
        x: Buf,
        index: Buf,
        experts: ExpertSpan,
        out: Buf,
    },
    /// down(silu(gate(x)) · up(x)) of every expert over the gathered rows. `inner` are scratch
    /// buffers for gate, up and their product.
    MoeExperts {
        x: Buf,
        index: Buf,
        experts: ExpertSpan,
        gate: WeightRef,
        up: WeightRef,
        down: WeightRef,
        inner: [Buf; 3],
        out: Buf,
    },
    /// Σ weight · row over the experts of a row, a tree over expert ids. Where only part of the
    /// experts is here: their part of the sum in FP32, unrounded; −0 for a row that chose none of
    /// them, which adds nothing.
    MoeCombine {
        x: Buf,
        index: Buf,
        weights: Buf,
        experts: ExpertSpan,
        out: Buf,
    },
    /// `x` += `shared`, or `x` += sigmoid(`gate`) · `shared`, in place.
    MoeShared {
        x: Buf,
        shared: Buf,
        gate: Option<Buf>,
    },
    /// FP32 out.
    GemmF32 {
        x: Buf,
        weight: WeightRef,
        out: Buf,
    },
    /// The rows of the embedding that this rank has, from `first_row` on; −0 for other tokens, which
    /// adds nothing.
    EmbeddingPart {
        weight: WeightRef,
        first_row: usize,
        out: Buf,
    },
    /// This rank's columns of a product: FP32, unrounded. `segments` of the whole K lie in them.
    GemmPart {
        x: Buf,
        weight: WeightRef,
        segments: usize,
        out: Buf,
    },
    /// In place: adds what the ranks of a group have, as a tree over their numbers, and rounds.
    AllReduce {
        x: Buf,
        group: RankGroup,
    },
    /// Columns of every rank of a group, side by side.
    AllGather {
        x: Buf,
        group: RankGroup,
        out: Buf,
    },
    /// Hands rows to the same rank of the next stage.
    StageSend {
        x: Buf,
    },
    /// Takes the rows that the stage before handed over.
    StageReceive {
        out: Buf,
    },
}

impl OpKind {
    /// The region this operation belongs to.
    pub fn region(&self) -> Region {
        match self {
            OpKind::Embedding { .. } => Region::Embedding,
            OpKind::RmsNorm { .. } => Region::RmsNorm,
            OpKind::PerHeadNorm { .. } => Region::PerHeadNorm,
            OpKind::Gemm { .. } => Region::Gemm,
            OpKind::ResidualAdd { .. } => Region::ResidualAdd,
            OpKind::QGateSplit { .. } => Region::QGateSplit,
            OpKind::Rope { .. } => Region::Rope,
            OpKind::KvWrite { .. } => Region::KvWrite,
            OpKind::BiasAdd { .. } => Region::BiasAdd,
            OpKind::MlaLatentNorm { .. } => Region::MlaLatentNorm,
            OpKind::MlaAttention { .. } => Region::MlaAttention,
            OpKind::AttentionCore { .. } => Region::AttentionCore,
            OpKind::AttentionOutputGate { .. } => Region::AttentionOutputGate,
            OpKind::GdnConv1d { .. } => Region::GdnConv1d,
            OpKind::GdnConvSilu { .. } => Region::GdnConvSilu,
            OpKind::GdnPrepare { .. } => Region::GdnPrepare,
            OpKind::GdnCore { .. } => Region::GdnCore,
            OpKind::GdnGatedNorm { .. } => Region::GdnGatedNorm,
            OpKind::SiluMul { .. } => Region::SiluMul,
            OpKind::GateUp { .. } => Region::GateUp,
            OpKind::ResidualNorm { .. } => Region::ResidualNorm,
            OpKind::MoeRouterLogits { .. } => Region::MoeRouterLogits,
            OpKind::MoeRouter { .. } => Region::MoeRouter,
            OpKind::MoePermute { .. } => Region::MoePermute,
            OpKind::MoeExperts { .. } => Region::MoeExperts,
            OpKind::MoeCombine { .. } => Region::MoeCombine,
            OpKind::MoeShared { .. } => Region::MoeShared,
            OpKind::GemmF32 { .. } => Region::GemmF32,
            OpKind::EmbeddingPart { .. } => Region::Embedding,
            OpKind::GemmPart { .. } => Region::Gemm,
            OpKind::AllReduce { .. } => Region::AllReduce,
            OpKind::AllGather { .. } => Region::AllGather,
            OpKind::StageSend { .. } | OpKind::StageReceive { .. } => Region::StageTransfer,
        }
    }
}

/// The lowered forward.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    pub buffers: Vec<BufferSpec>,
    /// Operations over every row of a step.
    pub ops: Vec<Op>,
    /// Operations over the rows whose hidden state or logits were asked for.
    pub head_ops: Vec<Op>,
    /// The residual stream: what head operations start from.
    pub residual: Buf,
    /// Output of the final norm (in `head_ops`).
    pub final_hidden: Buf,
    /// FP32 logits (in `head_ops`).
    pub logits: Buf,
    /// Attention caches, by slot.
    pub attention_slots: Vec<CacheSpec>,
    /// Gated-delta-net states, by slot.
    pub gdn_slots: Vec<GdnSpec>,
    /// The rotary embedding of `Rope` operations.
    pub rope: Option<Rope>,
}

impl Plan {
    /// Every operation in order.
    pub fn all_ops(&self) -> impl Iterator<Item = &Op> {
        self.ops.iter().chain(&self.head_ops)
    }

    /// The logits, and what they are gathered from.
    pub fn logits_buffers(&self) -> Vec<Buf> {
        let gathered = self.head_ops.iter().filter_map(|op| match op.kind {
            OpKind::AllGather { x, .. } => Some(x),
            _ => None,
        });
        gathered.chain([self.logits]).collect()
    }

    /// The regions that the plan reaches. `gdn_commit` runs inside `gdn_core`.
    pub fn regions(&self) -> BTreeSet<Region> {
        let mut regions: BTreeSet<Region> = self.all_ops().map(|op| op.kind.region()).collect();
        if regions.contains(&Region::GdnCore) {
            regions.insert(Region::GdnCommit);
        }
        regions
    }

    /// Every name that can be captured.
    pub fn tap_names(&self) -> BTreeSet<String> {
        self.all_ops().flat_map(|op| op.taps.iter().map(|(name, _)| name.clone())).collect()
    }
}
