//! The cores by themselves: plans of the few operations that reach one.

use super::inputs::{
    AttentionInputs, AttentionShape, GdnInputs, GdnShape, LatentInputs, LatentShape,
};
use crate::backend::cpu::{CpuModel, CpuOptions, Isa};
use crate::backend::cuda::{CudaModel, CudaOptions, Joins};
use crate::backend::{
    Buf, BufferSpec, CacheKind, CacheSpec, DeviceKind, DeviceModel, GdnSpec, Op, OpKind, Plan,
    Policy, RegionRun, Span, WeightRef,
};
use crate::descriptor::{GatedDeltaNet, RoleName};
use crate::tensor::{Shared, Storage, Weight, bf16_bits};
use std::collections::HashMap;

/// A plan without weights.
struct Bench {
    model: Box<dyn DeviceModel>,
    state: Box<dyn crate::backend::State>,
}

impl Bench {
    fn new(
        widths: &[(&str, usize)],
        ops: Vec<OpKind>,
        attention: Option<CacheSpec>,
        gdn: Option<GdnSpec>,
        weights: HashMap<WeightRef, Weight>,
        how: Execution,
    ) -> Result<Bench, String> {
        let buffers: Vec<BufferSpec> = widths
            .iter()
            .map(|(name, width)| BufferSpec { name: (*name).to_owned(), width: *width })
            .collect();
        let plan = Plan {
            buffers,
            ops: ops.into_iter().map(|kind| Op { kind, layer: None, taps: Vec::new() }).collect(),
            head_ops: Vec::new(),
            residual: Buf(0),
            final_hidden: Buf(0),
            logits: Buf(0),
            attention_slots: attention.into_iter().collect(),
            gdn_slots: gdn.into_iter().collect(),
            rope: None,
        };
        let Execution { policy, threads, .. } = how;
        let model: Box<dyn DeviceModel> = match how.device {
            DeviceKind::Cpu => {
                let threads = Some(threads);
                let options = CpuOptions { policy, isa: Isa::detect(), threads, poison: true };
                Box::new(CpuModel::new(plan, weights, &options)?)
            }
            DeviceKind::Cuda => {
                let options = CudaOptions {
                    policy,
                    ordinal: 0,
                    poison: true,
                    graphs: true,
                    joins: Joins::ALL,
                };
                Box::new(CudaModel::new(plan, &HashMap::new(), options)?)
            }
        };
        let state = model.new_state();
        Ok(Bench { model, state })
    }

    /// Feeds all rows in chunks; `inputs` are row-major, in the order of the first buffers. Gives
    /// the `outputs` buffers after them, for every row.
    fn feed(
        &mut self,
        inputs: &[&[f32]],
        outputs: usize,
        tokens: usize,
        chunk: usize,
    ) -> Result<Vec<Vec<f32>>, String> {
        let outputs: Vec<Buf> = (inputs.len()..inputs.len() + outputs).map(Buf).collect();
        let mut out = vec![Vec::new(); outputs.len()];
        for start in (0..tokens).step_by(chunk.max(1)) {
            let rows = chunk.max(1).min(tokens - start);
            let inputs: Vec<(Buf, Vec<f32>)> = inputs
                .iter()
                .enumerate()
                .map(|(i, values)| {
                    let width = values.len() / tokens;
                    (Buf(i), values[start * width..(start + rows) * width].to_vec())
                })
                .collect();
            let spans = [Span { rows: 0..rows, position: start }];
            let ids = vec![0; rows];
            let run = RegionRun { tokens: &ids, spans: &spans, inputs: &inputs, outputs: &outputs };
            let rows = self
                .model
                .region(&run, &mut [self.state.as_mut()])
                .map_err(|fault| fault.to_string())?;
            out.iter_mut().zip(rows).for_each(|(out, rows)| out.extend(rows));
        }
        Ok(out)
    }
}

impl Bench {
    /// The recurrent state, `[value head][key_dim][value_dim]`.
    fn recurrent(&self) -> Result<Vec<f32>, String> {
        let states = self.state.inspect();
        let state = states.into_iter().find(|s| s.name == "layers.0.recurrent");
        Ok(state.ok_or("the state cannot be inspected")?.values)
    }
}

/// How a core is executed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Execution {
    pub(super) device: DeviceKind,
    pub(super) policy: Policy,
    pub(super) threads: usize,
    /// Tokens of one step.
    pub(super) chunk_tokens: usize,
}

/// Outputs of `attention_core`, `[token][query head][head_dim]`.
pub(super) fn attention(inputs: &AttentionInputs, how: Execution) -> Result<Vec<f32>, String> {
    Ok(attention_asked(inputs, how, false)?.0)
}

/// The same and, if they are asked for, ln Σ exp(score), `[token][query head]`.
pub(super) fn attention_asked(
    inputs: &AttentionInputs,
    how: Execution,
    log_sums: bool,
) -> Result<(Vec<f32>, Vec<f32>), String> {
    let AttentionShape { tokens, heads, kv_heads, head_dim, window } = inputs.shape;
    let (q, kv) = (heads * head_dim, kv_heads * head_dim);
    let widths = [("q", q), ("k", kv), ("v", kv), ("out", q), ("log_sums", heads)];
    let sums = log_sums.then_some(Buf(4));
    let ops = vec![
        OpKind::KvWrite { k: Buf(1), v: Buf(2), slot: 0 },
        OpKind::AttentionCore { q: Buf(0), slot: 0, heads, out: Buf(3), log_sums: sums },
    ];
    let kind = window.map_or(CacheKind::Full, CacheKind::Window);
    let cache = CacheSpec { layer: 0, kv_heads, head_dim, value_dim: head_dim, kind };
    let mut bench = Bench::new(&widths, ops, Some(cache), None, HashMap::new(), how)?;
    let given = [&inputs.q, &inputs.k, &inputs.v].map(Vec::as_slice);
    let outputs = 1 + usize::from(log_sums);
    let mut found = bench.feed(&given, outputs, tokens, how.chunk_tokens)?.into_iter();
    Ok((found.next().unwrap_or_default(), found.next().unwrap_or_default()))
}

/// Outputs of `mla_attention`, `[token][head][value]`.
pub(super) fn latent_attention(inputs: &LatentInputs, how: Execution) -> Result<Vec<f32>, String> {
    let LatentShape { tokens, heads, latent, nope, rope, value } = inputs.shape;
    let widths = [
        ("q", heads * (nope + rope)),
        ("rope_key", rope),
        ("latent", latent),
        ("out", heads * value),
    ];
    let kv_b = WeightRef { role: RoleName::MlaKvB, layer: Some(0) };
    let bits = inputs.kv_b.iter().map(|x| bf16_bits(*x)).collect();
    let weight = Weight {
        rows: heads * (nope + value),
        cols: latent,
        storage: Storage::Bf16(Shared::owned(bits)),
    };
    let scale = 1.0 / ((nope + rope) as f32).sqrt();
    let ops = vec![
        OpKind::KvWrite { k: Buf(1), v: Buf(2), slot: 0 },
        OpKind::MlaAttention { q: Buf(0), slot: 0, heads, nope, kv_b, scale, out: Buf(3) },
    ];
    let (head_dim, value_dim, kind) = (rope, latent, CacheKind::Latent);
    let cache = CacheSpec { layer: 0, kv_heads: 1, head_dim, value_dim, kind };
    let weights = HashMap::from([(kv_b, weight)]);
    let mut bench = Bench::new(&widths, ops, Some(cache), None, weights, how)?;
    let given = [&inputs.q, &inputs.rope_key, &inputs.latent].map(Vec::as_slice);
    let mut found = bench.feed(&given, 1, tokens, how.chunk_tokens)?;
    Ok(found.pop().unwrap_or_default())
}

/// Outputs of `gdn_core`, `[token][value head][value_dim]`, and the last state,
/// `[value head][key_dim][value_dim]`.
pub(super) fn gated_delta_net(
    inputs: &GdnInputs,
    how: Execution,
) -> Result<(Vec<f32>, Vec<f32>), String> {
    let GdnShape { tokens, key_heads, value_heads, key_dim, value_dim } = inputs.shape;
    let (keys, values) = (key_heads * key_dim, value_heads * value_dim);
    let widths = [
        ("q", keys),
        ("k", keys),
        ("v", values),
        ("log_decay", value_heads),
        ("beta", value_heads),
        ("out", values),
    ];
    let [q, k, v, log_decay, beta, out] = [0, 1, 2, 3, 4, 5].map(Buf);
    let ops = vec![OpKind::GdnCore { q, k, v, log_decay, beta, slot: 0, out }];
    let dims = GatedDeltaNet { key_heads, value_heads, key_dim, value_dim, conv_width: 4 };
    let spec = GdnSpec { layer: 0, dims };
    let mut bench = Bench::new(&widths, ops, None, Some(spec), HashMap::new(), how)?;
    let given = [&inputs.q, &inputs.k, &inputs.v, &inputs.log_decay, &inputs.beta];
    let mut found = bench.feed(&given.map(Vec::as_slice), 1, tokens, how.chunk_tokens)?;
    let out = found.pop().unwrap_or_default();
    Ok((out, bench.recurrent()?))
}

/// What the projections and the convolution of a gated delta net give.
#[derive(Clone, Debug)]
pub(super) struct Projections {
    pub(super) shape: GdnShape,
    /// `[token][q | k | v]`.
    pub(super) qkv: Vec<f32>,
    /// `[token][value head]`.
    pub(super) a: Vec<f32>,
    /// `[token][value head]`.
    pub(super) b: Vec<f32>,
    /// The same in every head.
    pub(super) a_log: f32,
    pub(super) dt_bias: f32,
}

/// `gdn_prepare` and `gdn_core`: outputs and last state as [`gated_delta_net`] gives them.
pub(super) fn projected_gated_delta_net(
    p: &Projections,
    how: Execution,
) -> Result<(Vec<f32>, Vec<f32>), String> {
    let GdnShape { key_heads, value_heads, key_dim, value_dim, .. } = p.shape;
    let (keys, values) = (key_heads * key_dim, value_heads * value_dim);
    let widths = [
        ("qkv", 2 * keys + values),
        ("a", value_heads),
        ("b", value_heads),
        ("out", values),
        ("q", keys),
        ("k", keys),
        ("v", values),
        ("log_decay", value_heads),
        ("beta", value_heads),
    ];
    let [qkv, a, b, out, q, k, v, log_decay, beta] = [0, 1, 2, 3, 4, 5, 6, 7, 8].map(Buf);
    let weight = |role| WeightRef { role, layer: Some(0) };
    let (a_log, dt_bias) = (weight(RoleName::GdnALog), weight(RoleName::GdnDtBias));
    let vector = |value: f32| Weight {
        rows: 1,
        cols: value_heads,
        storage: Storage::F32(Shared::owned(vec![value; value_heads])),
    };
    let weights = HashMap::from([(a_log, vector(p.a_log)), (dt_bias, vector(p.dt_bias))]);
    let ops = vec![
        OpKind::GdnPrepare { slot: 0, qkv, a, b, a_log, dt_bias, q, k, v, log_decay, beta },
        OpKind::GdnCore { q, k, v, log_decay, beta, slot: 0, out },
    ];
    let dims = GatedDeltaNet { key_heads, value_heads, key_dim, value_dim, conv_width: 4 };
    let spec = GdnSpec { layer: 0, dims };
    let mut bench = Bench::new(&widths, ops, None, Some(spec), weights, how)?;
    let mut found = bench.feed(&[&p.qkv, &p.a, &p.b], 1, p.shape.tokens, how.chunk_tokens)?;
    Ok((found.pop().unwrap_or_default(), bench.recurrent()?))
}
