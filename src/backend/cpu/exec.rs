//! Walks operations of a plan.

use super::attention_core::{self, attention_core};
use super::buffers::Buffers;
use super::elementwise::{
    attention_output_gate, bias_add, embedding, gdn_conv_silu, q_gate_split, residual_add, silu_mul,
};
use super::fast::{self, Kernels, Panels, Repacked};
use super::gdn_conv1d::gdn_conv1d;
use super::gdn_core::{Inputs, gdn_core};
use super::gdn_gated_norm::{GatedNorm, gdn_gated_norm};
use super::gdn_prepare::{Prepared, gdn_prepare};
use super::int4::{self, Packed};
use super::mla_attention::{self, mla_attention, mla_latent_norm};
use super::moe_experts::Expert;
use super::rms_norm::{Norm, per_head_norm, residual_norm, rms_norm};
use super::rope::{Frequencies, rope};
use super::state::{AttentionCache, CpuState};
use crate::backend::cpu::Isa;
use crate::backend::ranks::Link;
use crate::backend::{
    CacheKind, CacheSpec, GdnSpec, NormWeight, OpKind, Plan, Policy, Region, Span, WeightRef,
};
use crate::descriptor::RoleName;
use crate::tensor::{Storage, Weight};
use crate::units::mutant;
use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};

mod context;
mod experts;
mod product;
mod rank;

pub(super) use context::Context;

/// Weights and constants that operations use.
#[derive(Debug)]
pub(super) struct Executor {
    matrices: HashMap<WeightRef, Weight>,
    /// Under `fast`: BF16 matrices of products, repacked; they are not in `matrices`.
    panels: HashMap<WeightRef, Panels>,
    /// Packed matrices; what prefill reads beside them is in `matrices` or `panels`.
    packed: HashMap<WeightRef, Packed>,
    /// Vectors widened to FP32; convolution weights transposed to `[tap][channel]`.
    vectors: HashMap<WeightRef, Vec<f32>>,
    /// Weights of every expert, by the reference to the gate matrices.
    experts: HashMap<WeightRef, Vec<Expert>>,
    frequencies: Option<Frequencies>,
    attention_slots: Vec<CacheSpec>,
    gdn_slots: Vec<GdnSpec>,
    pub(super) isa: Isa,
    kernels: Kernels,
    /// The kernels, if the policy is `fast`.
    fast: Option<Kernels>,
    round: bool,
    /// The way to the other ranks, if there are any.
    pub(super) link: Option<Link>,
    /// Index into [`Region::ALL`] of the operation under way, to attribute a fault.
    current: AtomicUsize,
}

impl Executor {
    /// Binds the weights that a plan names.
    ///
    /// # Errors
    /// When there is no memory for repacked weights.
    pub(super) fn new(
        plan: &Plan,
        mut matrices: HashMap<WeightRef, Weight>,
        frequencies: Option<Frequencies>,
        isa: Isa,
        policy: Policy,
    ) -> Result<Executor, String> {
        let no_memory = |e| format!("cannot allocate memory for the weights: {e}");
        let mut packed = int4::take(&mut matrices, &experts::counts(plan), policy)?;
        let mut repacked = match policy {
            Policy::Fast => fast::pack(plan, &mut matrices).map_err(no_memory)?,
            _ => Repacked::default(),
        };
        let experts = experts::bind(plan, &matrices, &mut repacked, &mut packed);
        let vectors = matrices
            .iter()
            .filter(|(r, w)| w.rows == 1 || r.role == RoleName::GdnConv)
            .map(|(r, w)| {
                let values = w.to_f32();
                let transposed = r.role == RoleName::GdnConv;
                (*r, if transposed { transpose(&values, w.cols) } else { values })
            })
            .collect();
        Ok(Executor {
            matrices,
            panels: repacked.matrices,
            packed: packed.matrices,
            experts,
            vectors,
            frequencies,
            attention_slots: plan.attention_slots.clone(),
            gdn_slots: plan.gdn_slots.clone(),
            isa,
            kernels: Kernels::of(isa),
            fast: (policy == Policy::Fast).then(|| Kernels::of(isa)),
            round: policy.rounds_to_bf16(),
            link: None,
            current: AtomicUsize::new(0),
        })
    }

    /// The region that was last started.
    pub(super) fn current_region(&self) -> String {
        Region::ALL[self.current.load(Ordering::Relaxed)].name().to_owned()
    }

    /// Executes one operation over all rows of a step; `states[i]` belongs to span i.
    pub(super) fn run(
        &self,
        op: &OpKind,
        context: &Context<'_>,
        b: &mut Buffers,
        states: &mut [&mut CpuState],
    ) {
        self.begin(op.region());
        let (isa, round) = (self.isa, self.round);
        match *op {
            OpKind::Embedding { weight, out } => {
                embedding(context.tokens, &self.matrices[&weight], round, b.get_mut(out));
            }
            OpKind::RmsNorm { x, norm, out } => {
                b.with(out, |out, b| rms_norm(isa, b.get(x), self.norm(&norm), out));
            }
            OpKind::PerHeadNorm { x, norm, .. } => {
                let width = b.width(x);
                per_head_norm(isa, b.get_mut(x), width, self.norm(&norm));
            }
            OpKind::Gemm { x, weight, out } => {
                b.with(out, |out, b| self.product(&weight, b.get(x), context, out, round));
            }
            OpKind::GemmF32 { x, weight, out } => {
                let round = round && mutant!("head_rounds_logits");
                b.with(out, |out, b| self.product(&weight, b.get(x), context, out, round));
            }
            OpKind::ResidualAdd { residual, x } => {
                let width = b.width(residual);
                b.with(residual, |r, b| residual_add(isa, r, b.get(x), width, round));
            }
            OpKind::QGateSplit { x, heads, head_dim, q, gate } => {
                let mut gates = b.take(gate);
                b.with(q, |q, b| q_gate_split(b.get(x), heads, head_dim, q, &mut gates));
                b.put(gate, gates);
            }
            OpKind::Rope { x, heads, head_dim, offset } => {
                let table = context.rope.as_ref().expect("a plan with rope has frequencies");
                rope(isa, b.get_mut(x), [heads, head_dim, offset], table, round);
            }
            OpKind::KvWrite { k, v, slot } => {
                let spec = &self.attention_slots[slot];
                let rows = |span: &Span, dim: usize| {
                    let width = spec.kv_heads * dim;
                    span.rows.start * width..span.rows.end * width
                };
                for (span, state) in context.spans.iter().zip(states) {
                    let k = &b.get(k)[rows(span, spec.head_dim)];
                    let v = &b.get(v)[rows(span, spec.value_dim)];
                    state.attention[slot].write(spec, span.position, k, v);
                }
            }
            OpKind::BiasAdd { x, bias } => {
                bias_add(isa, b.get_mut(x), &self.vectors[&bias], round);
            }
            OpKind::MlaLatentNorm { x, norm, latent, rope_key } => {
                let mut keys = b.take(rope_key);
                b.with(latent, |latent, b| {
                    mla_latent_norm(isa, b.get(x), self.norm(&norm), latent, &mut keys);
                });
                b.put(rope_key, keys);
            }
            OpKind::MlaAttention { q, slot, heads, nope, kv_b, scale, out } => {
                let spec = self.attention_slots[slot];
                let widths = [q, out].map(|buf| b.width(buf));
                let shape = mla_attention::Shape {
                    heads,
                    nope,
                    rope: spec.head_dim,
                    latent: spec.value_dim,
                    value: widths[1] / heads,
                    scale,
                    round,
                };
                let weight = &self.matrices[&kv_b];
                b.with(out, |out, b| {
                    for (span, state) in context.spans.iter().zip(states) {
                        let rows =
                            |i: usize| span.rows.start * widths[i]..span.rows.end * widths[i];
                        let (q, out) = (&b.get(q)[rows(0)], &mut out[rows(1)]);
                        let cache = &state.attention[slot];
                        mla_attention(isa, q, cache, weight, span.position, shape, out);
                    }
                });
            }
            OpKind::AttentionCore { q, slot, heads, out, .. } => {
                let spec = self.attention_slots[slot];
                let shape = attention_core::Shape {
                    heads,
                    kv_heads: spec.kv_heads,
                    head_dim: spec.head_dim,
                    scale: 1.0 / (spec.head_dim as f32).sqrt(),
                    window: match spec.kind {
                        CacheKind::Window(window) => Some(window),
                        _ => None,
                    },
                    round,
                };
                let width = heads * spec.head_dim;
                b.with(out, |out, b| {
                    for (span, state) in context.spans.iter().zip(states) {
                        let rows = span.rows.start * width..span.rows.end * width;
                        let (q, out) = (&b.get(q)[rows.clone()], &mut out[rows]);
                        let cache = &state.attention[slot];
                        match cache {
                            AttentionCache::Panels(pages) => {
                                fast::attention(self.kernels, q, pages, span.position, shape, out);
                            }
                            _ => attention_core(isa, q, cache, span.position, shape, out),
                        }
                    }
                });
            }
            OpKind::AttentionOutputGate { x, gate } => {
                let width = b.width(x);
                b.with(x, |x, b| attention_output_gate(isa, x, b.get(gate), width, round));
            }
            OpKind::GdnConv1d { x, weight, slot, out } => {
                let width = b.width(x);
                let taps = &self.vectors[&weight];
                b.with(out, |out, b| {
                    for (span, state) in context.spans.iter().zip(states) {
                        let rows = span.rows.start * width..span.rows.end * width;
                        let (x, out) = (&b.get(x)[rows.clone()], &mut out[rows]);
                        let state = &mut state.gdn[slot];
                        gdn_conv1d(isa, x, taps, span.position, state, round, out);
                    }
                });
            }
            OpKind::GdnConvSilu { x } => {
                let width = b.width(x);
                gdn_conv_silu(isa, b.get_mut(x), width, round);
            }
            OpKind::GdnPrepare {
                slot,
                qkv,
                a,
                b: rate,
                a_log,
                dt_bias,
                q,
                k,
                v,
                log_decay,
                beta,
            } => {
                let mut outs = [q, k, v, log_decay, beta].map(|buf| b.take(buf));
                let [q_out, k_out, v_out, g_out, beta_out] = &mut outs;
                let out =
                    Prepared { q: q_out, k: k_out, v: v_out, log_decay: g_out, beta: beta_out };
                let (a_log, dt_bias) = (&self.vectors[&a_log], &self.vectors[&dt_bias]);
                let dims = self.gdn_slots[slot].dims;
                let (qkv, a, rate) = (b.get(qkv), b.get(a), b.get(rate));
                gdn_prepare(isa, dims, qkv, a, rate, a_log, dt_bias, round, out);
                for (buf, data) in [q, k, v, log_decay, beta].into_iter().zip(outs) {
                    b.put(buf, data);
                }
            }
            OpKind::GdnCore { q, k, v, log_decay, beta, slot, out } => {
                let widths = [q, k, v, log_decay, beta, out].map(|buf| b.width(buf));
                b.with(out, |out, b| {
                    for (span, state) in context.spans.iter().zip(states) {
                        let rows =
                            |i: usize| span.rows.start * widths[i]..span.rows.end * widths[i];
                        let inputs = Inputs {
                            q: &b.get(q)[rows(0)],
                            k: &b.get(k)[rows(1)],
                            v: &b.get(v)[rows(2)],
                            log_decay: &b.get(log_decay)[rows(3)],
                            beta: &b.get(beta)[rows(4)],
                        };
                        let state = &mut state.gdn[slot];
                        gdn_core(
                            isa,
                            self.fast,
                            inputs,
                            span.position,
                            state,
                            round,
                            &mut out[rows(5)],
                        );
                    }
                });
            }
            OpKind::GdnGatedNorm { x, z, norm } => {
                let width = b.width(x);
                let weight = &self.matrices[&norm.weight];
                let norm = GatedNorm {
                    weight: &self.vectors[&norm.weight],
                    weight_is_bf16: matches!(weight.storage, Storage::Bf16(_)),
                    epsilon: norm.epsilon,
                    round,
                };
                b.with(x, |x, b| gdn_gated_norm(isa, x, b.get(z), width, norm));
            }
            OpKind::GateUp { x, gate, up, out } => {
                b.with(out, |out, b| self.gate_up([&gate, &up], b.get(x), context, out));
            }
            OpKind::ResidualNorm { residual, x, norm, out } => {
                let norm = self.norm(&norm);
                b.with_two([residual, out], |[residual, out], b| {
                    residual_norm(isa, residual, b.get(x), norm, out);
                });
            }
            OpKind::MoeRouterLogits { .. }
            | OpKind::MoeRouter { .. }
            | OpKind::MoePermute { .. }
            | OpKind::MoeExperts { .. }
            | OpKind::MoeCombine { .. }
            | OpKind::MoeShared { .. } => self.run_experts(op, context, b),
            OpKind::SiluMul { gate, up, out } => {
                let width = b.width(out);
                b.with(out, |out, b| silu_mul(isa, b.get(gate), b.get(up), width, round, out));
            }
            OpKind::EmbeddingPart { .. }
            | OpKind::GemmPart { .. }
            | OpKind::AllReduce { .. }
            | OpKind::AllGather { .. }
            | OpKind::StageSend { .. }
            | OpKind::StageReceive { .. } => self.run_rank(op, context, b),
        }
    }

    /// Notes the region of the operation that starts.
    fn begin(&self, region: Region) {
        let index = Region::ALL.iter().position(|r| *r == region).unwrap_or_default();
        self.current.store(index, Ordering::Relaxed);
    }

    pub(super) fn norm(&self, norm: &NormWeight) -> Norm<'_> {
        Norm {
            weight: &self.vectors[&norm.weight],
            style: norm.style,
            epsilon: norm.epsilon,
            round: self.round,
        }
    }
}

fn transpose(values: &[f32], cols: usize) -> Vec<f32> {
    let rows = values.len() / cols;
    (0..cols).flat_map(|c| (0..rows).map(move |r| values[r * cols + c])).collect()
}
