//! One CPU region at a time, with the shapes of SmolLM2-135M and of a small gated delta net:
//! `cargo bench --bench cpu_regions -- gemm/fast`.
//!
//! Times include the region's entry point (buffers are copied in and out, as `DeviceModel::region`
//! does); bytes and multiply-adds are given as throughput, to be held against the machine's bounds.

use assay::backend::cpu::{CpuModel, CpuOptions, Isa};
use assay::backend::{
    Buf, BufferSpec, CacheKind, CacheSpec, DeviceModel, GdnSpec, NormWeight, Op, OpKind, Plan,
    Policy, RegionRun, Span, State, WeightRef,
};
use assay::descriptor::{GatedDeltaNet, NormStyle, RoleName};
use assay::tensor::{Shared, Storage, Weight, bf16_bits, round_bf16};
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use std::collections::HashMap;

const POLICIES: [Policy; 2] = [Policy::Fast, Policy::Reference];
const ROWS: [usize; 4] = [1, 4, 64, 512];

/// A plan of one operation, its weights, and what its inputs are.
struct Subject {
    plan: Plan,
    weights: HashMap<WeightRef, Weight>,
    inputs: Vec<Buf>,
}

impl Subject {
    fn new() -> Subject {
        let plan = Plan {
            buffers: Vec::new(),
            ops: Vec::new(),
            head_ops: Vec::new(),
            residual: Buf(0),
            final_hidden: Buf(0),
            logits: Buf(0),
            attention_slots: Vec::new(),
            gdn_slots: Vec::new(),
            rope: None,
        };
        Subject { plan, weights: HashMap::new(), inputs: Vec::new() }
    }

    fn buffer(&mut self, width: usize) -> Buf {
        let name = format!("b{}", self.plan.buffers.len());
        self.plan.buffers.push(BufferSpec { name, width });
        Buf(self.plan.buffers.len() - 1)
    }

    fn input(&mut self, width: usize) -> Buf {
        let buf = self.buffer(width);
        self.inputs.push(buf);
        buf
    }

    fn weight(&mut self, role: RoleName, rows: usize, cols: usize) -> WeightRef {
        let weight = WeightRef { role, layer: Some(0) };
        let bits = noise(rows * cols, 7).iter().map(|x| bf16_bits(*x)).collect();
        let storage = Storage::Bf16(Shared::owned(bits));
        self.weights.insert(weight, Weight { rows, cols, storage });
        weight
    }

    fn op(mut self, kind: OpKind) -> Subject {
        self.plan.ops.push(Op { kind, layer: Some(0), taps: Vec::new() });
        self
    }

    fn model(&self, policy: Policy) -> CpuModel {
        let options = CpuOptions { policy, isa: Isa::detect(), threads: None, poison: false };
        CpuModel::new(self.plan.clone(), self.weights.clone(), &options).expect("supported shapes")
    }

    fn values(&self, rows: usize) -> Vec<(Buf, Vec<f32>)> {
        let values = |buf: &Buf| noise(rows * self.plan.buffers[buf.0].width, buf.0 as u32 + 1);
        self.inputs.iter().map(|buf| (*buf, values(buf))).collect()
    }

    /// Executes `rows` rows of one sequence, which then has `rows` more tokens.
    fn execute(
        &self,
        model: &CpuModel,
        state: &mut dyn State,
        inputs: &[(Buf, Vec<f32>)],
        rows: usize,
    ) {
        let spans = [Span { rows: 0..rows, position: state.len_tokens() }];
        let tokens = vec![0; rows];
        let run = RegionRun { tokens: &tokens, spans: &spans, inputs, outputs: &[] };
        model.region(&run, &mut [state]).expect("the region runs");
    }
}

fn noise(n: usize, seed: u32) -> Vec<f32> {
    let mut state = seed;
    (0..n)
        .map(|_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            round_bf16((state >> 8) as f32 / 8_388_608.0 - 1.0)
        })
        .collect()
}

/// Regions whose rows do not depend on earlier ones.
fn stateless(c: &mut Criterion) {
    let mut subjects: Vec<(&str, Subject, Throughput)> = Vec::new();
    for (name, n, k) in [("gemm", 576, 1536), ("gemm_wide", 1536, 576), ("head", 49_152, 576)] {
        let mut s = Subject::new();
        let (x, weight) = (s.input(k), s.weight(RoleName::MlpDown, n, k));
        let out = s.buffer(n);
        let bytes = Throughput::Bytes((n * k * 2) as u64);
        subjects.push((name, s.op(OpKind::Gemm { x, weight, out }), bytes));
    }
    let mut s = Subject::new();
    let x = s.input(576);
    let gate = s.weight(RoleName::MlpGate, 1536, 576);
    let up = s.weight(RoleName::MlpUp, 1536, 576);
    let out = s.buffer(1536);
    let bytes = Throughput::Bytes(2 * 1536 * 576 * 2);
    subjects.push(("gate_up", s.op(OpKind::GateUp { x, gate, up, out }), bytes));
    let mut s = Subject::new();
    let (gate, up, out) = (s.input(1536), s.input(1536), s.buffer(1536));
    let values = Throughput::Elements(1536);
    subjects.push(("silu_mul", s.op(OpKind::SiluMul { gate, up, out }), values));
    let mut s = Subject::new();
    let (residual, x, out) = (s.input(576), s.input(576), s.buffer(576));
    let weight = s.weight(RoleName::PostNorm, 1, 576);
    let norm = NormWeight { weight, style: NormStyle::Plain, epsilon: 1e-5 };
    let op = OpKind::ResidualNorm { residual, x, norm, out };
    subjects.push(("residual_norm", s.op(op), Throughput::Elements(576)));
    for (name, subject, throughput) in subjects {
        for policy in POLICIES {
            let model = subject.model(policy);
            let mut group = c.benchmark_group(format!("{name}/{policy}"));
            for rows in ROWS.into_iter().filter(|rows| name != "head" || *rows == 1) {
                let inputs = subject.values(rows);
                group.throughput(throughput.clone());
                group.bench_function(rows.to_string(), |b| {
                    let mut state = model.new_state();
                    b.iter(|| subject.execute(&model, state.as_mut(), &inputs, rows));
                });
            }
        }
    }
}

/// Attention of one query row, and of 64, at the end of a cache.
fn attention(c: &mut Criterion) {
    let (heads, kv_heads, head_dim) = (9, 3, 64);
    let build = |attends: bool| {
        let mut s = Subject::new();
        s.plan.attention_slots.push(CacheSpec {
            layer: 0,
            kv_heads,
            head_dim,
            value_dim: head_dim,
            kind: CacheKind::Full,
        });
        let (k, v) = (s.input(kv_heads * head_dim), s.input(kv_heads * head_dim));
        let mut s = s.op(OpKind::KvWrite { k, v, slot: 0 });
        if !attends {
            return s;
        }
        let (q, out) = (s.input(heads * head_dim), s.buffer(heads * head_dim));
        s.op(OpKind::AttentionCore { q, slot: 0, heads, out, log_sums: None })
    };
    let (fill, subject) = (build(false), build(true));
    for policy in POLICIES {
        let (filler, model) = (fill.model(policy), subject.model(policy));
        let mut group = c.benchmark_group(format!("attention_core/{policy}"));
        for (context, rows) in [(512, 1), (4096, 1), (512, 64), (4096, 64)] {
            let mut state = model.new_state();
            let before = context - rows;
            fill.execute(&filler, state.as_mut(), &fill.values(before), before);
            let inputs = subject.values(rows);
            let products = 2 * rows * context * heads * head_dim;
            group.throughput(Throughput::Elements(products as u64));
            group.bench_function(format!("{rows}_at_{context}"), |b| {
                b.iter(|| {
                    subject.execute(&model, state.as_mut(), &inputs, rows);
                    state.truncate(before).expect("an attention cache goes back anywhere");
                });
            });
        }
    }
}

/// The gated delta rule: one row in the middle of a group, and whole groups.
fn gated_delta_net(c: &mut Criterion) {
    let dims =
        GatedDeltaNet { key_heads: 4, value_heads: 8, key_dim: 128, value_dim: 128, conv_width: 4 };
    let (keys, values) = (dims.key_heads * dims.key_dim, dims.value_heads * dims.value_dim);
    let mut s = Subject::new();
    s.plan.gdn_slots.push(GdnSpec { layer: 0, dims });
    let op = OpKind::GdnCore {
        q: s.input(keys),
        k: s.input(keys),
        v: s.input(values),
        log_decay: s.input(dims.value_heads),
        beta: s.input(dims.value_heads),
        slot: 0,
        out: s.buffer(values),
    };
    let OpKind::GdnCore { log_decay, .. } = op else { unreachable!("just built") };
    let subject = s.op(op);
    let calm = |rows: usize| {
        let mut inputs = subject.values(rows);
        for (buf, values) in &mut inputs {
            let scale = if *buf == log_decay { -0.1 } else { 0.1 };
            values.iter_mut().for_each(|x| *x = x.abs() * scale);
        }
        inputs
    };
    for policy in POLICIES {
        let model = subject.model(policy);
        let mut group = c.benchmark_group(format!("gdn_core/{policy}"));
        for rows in [1, 64, 256] {
            let mut state = model.new_state();
            subject.execute(&model, state.as_mut(), &calm(32), 32);
            let inputs = calm(rows);
            group.throughput(Throughput::Elements(rows as u64));
            group.bench_function(rows.to_string(), |b| {
                b.iter_batched(
                    || state.fork(),
                    |mut state| subject.execute(&model, state.as_mut(), &inputs, rows),
                    criterion::BatchSize::SmallInput,
                );
            });
        }
    }
}

criterion_group!(regions, stateless, attention, gated_delta_net);
criterion_main!(regions);
