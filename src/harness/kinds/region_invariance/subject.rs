//! A region by itself: a plan of one operation, weights and inputs.

use super::axes::{axes_of, dims, optional, pair, read_word};
use super::builder::Builder;
use super::experts;
use super::latent;
use super::material::{distinct, values};
use super::rotary;
use crate::backend::cpu::{CpuModel, CpuOptions, Isa};
use crate::backend::cuda::{BoundWeight, CudaModel, CudaOptions, Joins};
use crate::backend::{
    Buf, CacheKind, CacheSpec, DeviceKind, DeviceModel, Op, OpKind, Plan, Policy, Region, WeightRef,
};
use crate::descriptor::{NormStyle, RoleName};
use crate::harness::kind::Cell;
use crate::tensor::Weight;
use std::collections::HashMap;

/// Query rows executed at the end of a long cache.
const LAST_ROWS: usize = 24;
/// Vocabulary of regions that read token ids or logits.
pub(super) const VOCAB: usize = 700;

/// A bound region and its rows.
#[derive(Debug)]
pub(super) struct Subject {
    pub(super) region: Region,
    pub(super) model: Box<dyn DeviceModel>,
    /// Executes rows before the compared ones (fills the cache only).
    pub(super) prefix: Option<Box<dyn DeviceModel>>,
    /// Rows that `prefix` executes.
    pub(super) prefix_rows: usize,
    /// Rows that are compared.
    pub(super) rows: usize,
    pub(super) inputs: Vec<Input>,
    pub(super) outputs: Vec<Buf>,
    pub(super) vocab: usize,
    pub(super) round: bool,
}

/// An input buffer and how its values are drawn.
#[derive(Clone, Copy, Debug)]
pub(super) struct Input {
    pub(super) buf: Buf,
    pub(super) width: usize,
    pub(super) draw: Draw,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Draw {
    /// Mixed magnitudes.
    Activation,
    /// Unit rows as `gdn_prepare` makes them: small values.
    Unit,
    /// Log decays: negative, mostly mild, some extreme.
    LogDecay,
    /// In [0, 1).
    Rate,
    /// Different expert ids in every row.
    Experts { experts: usize },
}

impl Input {
    /// An input of mixed magnitudes.
    pub(super) fn activation(buf: Buf, width: usize) -> Input {
        Input { buf, width, draw: Draw::Activation }
    }

    /// Values of `rows` rows of a stream.
    pub(super) fn values(&self, rows: usize, stream: u64, round: bool) -> Vec<f32> {
        let seed = stream.wrapping_mul(1000) + self.buf.0 as u64;
        let count = rows * self.width;
        match self.draw {
            Draw::Experts { experts } => distinct(rows, self.width, experts, seed),
            Draw::Activation => values(count, seed, 1.0, round),
            Draw::Unit => values(count, seed, 0.08, round),
            Draw::LogDecay => {
                values(count, seed, 1.0, false).into_iter().map(|x| -(x * x * x).abs()).collect()
            }
            Draw::Rate => {
                values(count, seed, 1.0, false).into_iter().map(|x| x.abs().fract()).collect()
            }
        }
    }
}

impl Subject {
    /// The region with the shapes of a cell.
    pub(super) fn new(region: Region, cell: &Cell, threads: usize) -> Result<Subject, String> {
        let policy = cell.policy.ok_or("the cell has no policy")?;
        let mut b = Builder::new();
        let mut prefix = None;
        let (mut rows, mut prefix_rows, mut vocab) = (0, 0, VOCAB);
        if axes_of(region).contains(&"tokens") {
            rows = cell.read("tokens")?;
        }
        match region {
            Region::Embedding => {
                let width = cell.read("width")?;
                let weight = b.weight(RoleName::Embed, VOCAB, width, 1.0);
                let out = b.output("x", width);
                b.op(OpKind::Embedding { weight, out });
            }
            Region::RmsNorm => {
                let width = cell.read("width")?;
                let norm = b.norm(RoleName::InputNorm, width, read_word(cell, "style")?);
                let x = b.input("x", width, Draw::Activation);
                let out = b.output("y", width);
                b.op(OpKind::RmsNorm { x, norm, out });
            }
            Region::PerHeadNorm => {
                let [heads, _] = pair(cell)?;
                let head_dim = cell.read("head_dim")?;
                let norm = b.norm(RoleName::AttnQNorm, head_dim, read_word(cell, "style")?);
                let x = b.input("x", heads * head_dim, Draw::Activation);
                b.outputs.push(x);
                b.op(OpKind::PerHeadNorm { x, heads, head_dim, norm });
            }
            Region::Gemm | Region::GemmF32 | Region::GateUp => {
                let (k, n) = (cell.read("k")?, cell.read("n")?);
                let gate = b.weight(RoleName::MlpGate, n, k, 0.2);
                let weight = b.weight(RoleName::MlpUp, n, k, 0.2);
                let x = b.input("x", k, Draw::Activation);
                let out = b.output("y", n);
                b.op(match region {
                    Region::Gemm => OpKind::Gemm { x, weight, out },
                    Region::GemmF32 => OpKind::GemmF32 { x, weight, out },
                    _ => OpKind::GateUp { x, gate, up: weight, out },
                });
            }
            Region::ResidualAdd | Region::ResidualNorm => {
                let width = cell.read("width")?;
                let residual = b.input("residual", width, Draw::Activation);
                let x = b.input("x", width, Draw::Activation);
                b.outputs.push(residual);
                if region == Region::ResidualAdd {
                    b.op(OpKind::ResidualAdd { residual, x });
                } else {
                    let norm = b.norm(RoleName::PostNorm, width, NormStyle::Plain);
                    let out = b.output("y", width);
                    b.op(OpKind::ResidualNorm { residual, x, norm, out });
                }
            }
            Region::SiluMul => {
                let width = cell.read("width")?;
                let gate = b.input("gate", width, Draw::Activation);
                let up = b.input("up", width, Draw::Activation);
                let out = b.output("y", width);
                b.op(OpKind::SiluMul { gate, up, out });
            }
            Region::AttentionOutputGate => {
                let width = cell.read("width")?;
                let x = b.input("x", width, Draw::Activation);
                let gate = b.input("gate", width, Draw::Activation);
                b.outputs.push(x);
                b.op(OpKind::AttentionOutputGate { x, gate });
            }
            Region::GdnConvSilu => {
                let x = b.input("x", cell.read("width")?, Draw::Activation);
                b.outputs.push(x);
                b.op(OpKind::GdnConvSilu { x });
            }
            Region::QGateSplit => {
                let [heads, _] = pair(cell)?;
                let head_dim = cell.read("head_dim")?;
                let x = b.input("x", 2 * heads * head_dim, Draw::Activation);
                let q = b.output("q", heads * head_dim);
                let gate = b.output("gate", heads * head_dim);
                b.op(OpKind::QGateSplit { x, heads, head_dim, q, gate });
            }
            Region::Rope => rotary::rope(&mut b, cell)?,
            Region::KvWrite | Region::AttentionCore => {
                let [heads, kv_heads] = pair(cell)?;
                let head_dim = cell.read("head_dim")?;
                let positions: usize = cell.read("kv_tokens")?;
                let k = b.input("k", kv_heads * head_dim, Draw::Activation);
                let v = b.input("v", kv_heads * head_dim, Draw::Activation);
                let value_dim = head_dim;
                let window = optional(cell, "window", Cell::read)?;
                let kind = window.map_or(CacheKind::Full, CacheKind::Window);
                b.plan.attention_slots.push(CacheSpec {
                    layer: 0,
                    kv_heads,
                    head_dim,
                    value_dim,
                    kind,
                });
                b.op(OpKind::KvWrite { k, v, slot: 0 });
                rows = positions;
                if region == Region::AttentionCore {
                    rows = positions.min(LAST_ROWS);
                    prefix_rows = positions - rows;
                    prefix = Some((b.plan.clone(), HashMap::new()));
                    let q = b.input("q", heads * head_dim, Draw::Activation);
                    let out = b.output("y", heads * head_dim);
                    b.op(OpKind::AttentionCore { q, slot: 0, heads, out, log_sums: None });
                }
            }
            Region::GdnConv1d => {
                let dims = dims(cell)?;
                let slot = b.gdn(dims);
                let channels = dims.channels();
                let weight = b.weight(RoleName::GdnConv, channels, dims.conv_width, 0.5);
                let x = b.input("x", channels, Draw::Activation);
                let out = b.output("y", channels);
                b.op(OpKind::GdnConv1d { x, weight, slot, out });
            }
            Region::GdnPrepare => {
                let dims = dims(cell)?;
                let slot = b.gdn(dims);
                let keys = dims.key_heads * dims.key_dim;
                let heads = dims.value_heads;
                let kind = OpKind::GdnPrepare {
                    slot,
                    qkv: b.input("qkv", dims.channels(), Draw::Activation),
                    a: b.input("a", heads, Draw::Activation),
                    b: b.input("b", heads, Draw::Activation),
                    a_log: b.weight(RoleName::GdnALog, 1, heads, 1.0),
                    dt_bias: b.weight(RoleName::GdnDtBias, 1, heads, 1.0),
                    q: b.output("q", keys),
                    k: b.output("k", keys),
                    v: b.output("v", heads * dims.value_dim),
                    log_decay: b.output("log_decay", heads),
                    beta: b.output("beta", heads),
                };
                b.op(kind);
            }
            Region::GdnCore | Region::GdnCommit => {
                let dims = dims(cell)?;
                let slot = b.gdn(dims);
                let keys = dims.key_heads * dims.key_dim;
                let values = dims.value_heads * dims.value_dim;
                let kind = OpKind::GdnCore {
                    q: b.input("q", keys, Draw::Unit),
                    k: b.input("k", keys, Draw::Unit),
                    v: b.input("v", values, Draw::Activation),
                    log_decay: b.input("log_decay", dims.value_heads, Draw::LogDecay),
                    beta: b.input("beta", dims.value_heads, Draw::Rate),
                    slot,
                    out: b.buffer("y", values),
                };
                if let OpKind::GdnCore { out, .. } = kind
                    && region == Region::GdnCore
                {
                    b.outputs.push(out);
                }
                b.op(kind);
            }
            Region::GdnGatedNorm => {
                let dims = dims(cell)?;
                let width = dims.value_heads * dims.value_dim;
                let norm = b.norm(RoleName::GdnNorm, dims.value_dim, NormStyle::Plain);
                let x = b.input("x", width, Draw::Activation);
                let z = b.input("z", width, Draw::Activation);
                b.outputs.push(x);
                b.op(OpKind::GdnGatedNorm { x, z, norm });
            }
            Region::BiasAdd => {
                let width = cell.read("width")?;
                let bias = b.weight(RoleName::AttnQBias, 1, width, 1.0);
                let x = b.input("x", width, Draw::Activation);
                b.outputs.push(x);
                b.op(OpKind::BiasAdd { x, bias });
            }
            Region::MlaLatentNorm => latent::norm(&mut b, cell)?,
            Region::MlaAttention => {
                let positions: usize = cell.read("kv_tokens")?;
                rows = positions.min(LAST_ROWS);
                prefix_rows = positions - rows;
                prefix = Some((latent::attention(&mut b, cell)?, HashMap::new()));
            }
            Region::MoeRouterLogits
            | Region::MoeRouter
            | Region::MoePermute
            | Region::MoeExperts
            | Region::MoeCombine
            | Region::MoeShared => experts::build(&mut b, region, cell)?,
            Region::AllReduce | Region::AllGather | Region::StageTransfer => {
                return super::ranks::subject(region, cell, policy, threads, b.plan);
            }
            Region::LogSoftmax | Region::Sampler => {
                // Logits of a head over an embedding row: the shortest forward there is.
                vocab = cell.read("width")?;
                let hidden = 64;
                let embed = b.weight(RoleName::Embed, vocab, hidden, 1.0);
                let norm = b.norm(RoleName::FinalNorm, hidden, NormStyle::Plain);
                let head = b.weight(RoleName::LmHead, vocab, hidden, 0.2);
                b.plan.residual = b.buffer("residual", hidden);
                b.plan.final_hidden = b.buffer("final_norm", hidden);
                b.plan.logits = b.buffer("logits", vocab);
                b.op(OpKind::Embedding { weight: embed, out: b.plan.residual });
                let (x, out) = (b.plan.final_hidden, b.plan.logits);
                for kind in [
                    OpKind::RmsNorm { x: b.plan.residual, norm, out: x },
                    OpKind::GemmF32 { x, weight: head, out },
                ] {
                    b.plan.head_ops.push(Op { kind, layer: None, taps: Vec::new() });
                }
            }
        }
        let prefix =
            prefix.map(|(plan, w)| load(cell.device, policy, plan, w, threads)).transpose()?;
        Ok(Subject {
            region,
            model: load(cell.device, policy, b.plan, b.weights, threads)?,
            prefix,
            prefix_rows,
            rows,
            inputs: b.inputs,
            outputs: b.outputs,
            vocab,
            round: policy.rounds_to_bf16(),
        })
    }

    /// Whether rows go through the head (outputs are what the region makes of logits).
    pub(super) fn reads_logits(&self) -> bool {
        matches!(self.region, Region::LogSoftmax | Region::Sampler)
    }
}

fn load(
    device: DeviceKind,
    policy: Policy,
    plan: Plan,
    weights: HashMap<WeightRef, Weight>,
    threads: usize,
) -> Result<Box<dyn DeviceModel>, String> {
    match device {
        DeviceKind::Cpu => {
            let options =
                CpuOptions { policy, isa: Isa::detect(), threads: Some(threads), poison: true };
            Ok(Box::new(CpuModel::new(plan, weights, &options)?))
        }
        DeviceKind::Cuda => {
            let weights = weights.into_iter().map(|(r, w)| (r, BoundWeight::Host(w))).collect();
            let options =
                CudaOptions { policy, ordinal: 0, poison: true, graphs: true, joins: Joins::ALL };
            Ok(Box::new(CudaModel::new(plan, &weights, options)?))
        }
    }
}
