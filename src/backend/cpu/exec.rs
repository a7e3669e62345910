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
use super::gemm::gemm;
use super::int4::{self, Packed, Rounding};
use super::mla_attention::{self, mla_attention, mla_latent_norm};
use super::moe_combine::{moe_combine, moe_shared};
use super::moe_experts::{Expert, Matrix, Order, moe_experts, moe_permute};
use super::moe_router::moe_router;
use super::phase::Phases;
use super::rms_norm::{Norm, per_head_norm, residual_norm, rms_norm};
use super::rope::{Frequencies, Table, rope};
use super::state::{AttentionCache, CpuState};
use crate::backend::cpu::Isa;
use crate::backend::{
    CacheKind, CacheSpec, GdnSpec, NormWeight, OpKind, Plan, Policy, Region, Span, WeightRef,
};
use crate::descriptor::RoleName;
use crate::tensor::{Storage, Weight};
use crate::units::mutant;
use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};

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
    /// Index into [`Region::ALL`] of the operation under way, to attribute a fault.
    current: AtomicUsize,
}

/// What all operations of one step share.
#[derive(Debug)]
pub(super) struct Context<'a> {
    tokens: &'a [u32],
    spans: &'a [Span],
    rope: Option<Table>,
    phases: Phases,
}

impl<'a> Context<'a> {
    /// The context of rows that belong to `spans`.
    pub(super) fn new(executor: &Executor, tokens: &'a [u32], spans: &'a [Span]) -> Context<'a> {
        let positions: Vec<usize> =
            spans.iter().flat_map(|s| s.position..s.position + s.rows.len()).collect();
        let positions = match mutant!("rope_restarts_each_step") {
            true => spans.iter().flat_map(|s| 0..s.rows.len()).collect(),
            false => positions,
        };
        let rope = executor.frequencies.as_ref().map(|f| f.table(&positions, executor.round));
        Context { tokens, spans, rope, phases: Phases::default() }
    }

    /// The same rows, some of them prefill; without this all are decode.
    pub(super) fn with_phases(self, phases: Phases) -> Context<'a> {
        Context { phases, ..self }
    }
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
        let packed = int4::take(&mut matrices, policy);
        let mut repacked = match policy {
            Policy::Fast => fast::pack(plan, &mut matrices)
                .map_err(|e| format!("cannot allocate memory for the weights: {e}"))?,
            _ => Repacked::default(),
        };
        let experts = experts(plan, &matrices, &mut repacked);
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
            packed,
            experts,
            vectors,
            frequencies,
            attention_slots: plan.attention_slots.clone(),
            gdn_slots: plan.gdn_slots.clone(),
            isa,
            kernels: Kernels::of(isa),
            fast: (policy == Policy::Fast).then(|| Kernels::of(isa)),
            round: policy.rounds_to_bf16(),
            current: AtomicUsize::new(0),
        })
    }

    /// Regions `gemm` and `gemm_f32`.
    fn product(
        &self,
        weight: &WeightRef,
        x: &[f32],
        context: &Context<'_>,
        out: &mut [f32],
        round: bool,
    ) {
        if let Some(packed) = self.packed.get(weight) {
            let rounding = Rounding { weights: self.round, results: round };
            let wide = |x: &[f32], out: &mut [f32]| self.wide(weight, x, out, round);
            return packed.product(self.isa, x, &context.phases, wide, out, rounding);
        }
        self.wide(weight, x, out, round);
    }

    /// The product with a weight that is not packed.
    fn wide(&self, weight: &WeightRef, x: &[f32], out: &mut [f32], round: bool) {
        match self.panels.get(weight) {
            Some(panels) => fast::gemm(self.kernels, x, panels, out, round),
            None => gemm(self.isa, x, &self.matrices[weight], out, round),
        }
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
        let region = op.region();
        let index = Region::ALL.iter().position(|r| *r == region).unwrap_or_default();
        self.current.store(index, Ordering::Relaxed);
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
                rope(b.get_mut(x), [heads, head_dim, offset], table, round);
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
            OpKind::AttentionCore { q, slot, heads, out } => {
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
            OpKind::MoeRouter { logits, ref router, index, weights } => {
                let experts = b.width(logits);
                let mut chosen = b.take(weights);
                b.with(index, |index, b| {
                    moe_router(isa, b.get(logits), experts, router, round, index, &mut chosen);
                });
                b.put(weights, chosen);
            }
            OpKind::MoePermute { x, index, experts, out } => {
                let order = Order::new(b.get(index), experts);
                let width = b.width(x);
                b.with(out, |out, b| moe_permute(b.get(x), &order, width, out));
            }
            OpKind::MoeExperts { x, index, experts, gate, inner, out, .. } => {
                let order = Order::new(b.get(index), experts);
                let mut scratch = inner.map(|buf| b.take(buf));
                let inner_rows = scratch.each_mut().map(Vec::as_mut_slice);
                b.with(out, |out, b| {
                    let experts = &self.experts[&gate];
                    let kernels = (isa, self.kernels);
                    moe_experts(kernels, b.get(x), &order, experts, round, inner_rows, out);
                });
                inner.into_iter().zip(scratch).for_each(|(buf, data)| b.put(buf, data));
            }
            OpKind::MoeCombine { x, index, weights, experts, out } => {
                let order = Order::new(b.get(index), experts);
                let width = b.width(out);
                b.with(out, |out, b| {
                    let (x, index, weights) = (b.get(x), b.get(index), b.get(weights));
                    moe_combine(isa, x, index, weights, &order, width, round, out);
                });
            }
            OpKind::MoeShared { x, shared, gate } => {
                let width = b.width(x);
                b.with(x, |x, b| {
                    moe_shared(isa, x, b.get(shared), gate.map(|g| b.get(g)), width, round);
                });
            }
            OpKind::SiluMul { gate, up, out } => {
                let width = b.width(out);
                b.with(out, |out, b| silu_mul(isa, b.get(gate), b.get(up), width, round, out));
            }
        }
    }

    /// Region `gate_up`.
    fn gate_up(&self, weights: [&WeightRef; 2], x: &[f32], context: &Context<'_>, out: &mut [f32]) {
        let [gate, up] = weights;
        let weights = if mutant!("fused_gate_up_swapped") { [up, gate] } else { weights };
        let packed = weights.iter().any(|w| self.packed.contains_key(w));
        if let [Some(gate), Some(up)] = weights.map(|w| self.panels.get(w))
            && !packed
        {
            return fast::gate_up(self.kernels, x, [gate, up], out, self.round);
        }
        let mut products = [vec![0.0; out.len()], vec![0.0; out.len()]];
        for (weight, product) in weights.into_iter().zip(&mut products) {
            let round = self.round && !mutant!("fused_products_unrounded");
            self.product(weight, x, context, product, round);
        }
        let [gate, up] = &products;
        silu_mul(self.isa, gate, up, self.rows(weights[0]), self.round, out);
    }

    /// Rows of a matrix.
    fn rows(&self, weight: &WeightRef) -> usize {
        self.panels.get(weight).map_or_else(|| self.matrices[weight].rows, |panels| panels.rows)
    }

    fn norm(&self, norm: &NormWeight) -> Norm<'_> {
        Norm {
            weight: &self.vectors[&norm.weight],
            style: norm.style,
            epsilon: norm.epsilon,
            round: self.round,
        }
    }
}

/// Every expert's own matrices: panels where they were packed, else memory of the whole weights.
fn experts(
    plan: &Plan,
    matrices: &HashMap<WeightRef, Weight>,
    repacked: &mut Repacked,
) -> HashMap<WeightRef, Vec<Expert>> {
    let mut all = HashMap::new();
    for op in plan.all_ops() {
        let OpKind::MoeExperts { experts, gate, up, down, .. } = op.kind else { continue };
        let mut of = |weight: WeightRef| -> Vec<Matrix> {
            if let Some(panels) = repacked.experts.remove(&weight) {
                return panels.into_iter().map(Matrix::Panels).collect();
            }
            let rows = matrices[&weight].rows / experts;
            let slice = |e: usize| matrices[&weight].slice_rows(e * rows..(e + 1) * rows);
            (0..experts).map(|e| Matrix::Plain(slice(e))).collect()
        };
        let matrices = of(gate).into_iter().zip(of(up)).zip(of(down));
        let expert = |((gate, up), down)| Expert { gate, up, down };
        all.insert(gate, matrices.map(expert).collect());
    }
    all
}

fn transpose(values: &[f32], cols: usize) -> Vec<f32> {
    let rows = values.len() / cols;
    (0..cols).flat_map(|c| (0..rows).map(move |r| values[r * cols + c])).collect()
}
