//! One product by itself: a plan of one operation.

use crate::backend::cpu::{CpuModel, CpuOptions, Isa};
use crate::backend::{
    Buf, BufferSpec, DeviceModel, Op, OpKind, Plan, Policy, RegionRun, Span, WeightRef,
};
use crate::descriptor::RoleName;
use crate::tensor::{Int4, Int4Plan, Int4Shape, Shared, Storage, Weight, bf16_bits, round_bf16};
use crate::units::SplitMix64;
use std::collections::HashMap;

/// X, and the weight before and after packing.
#[derive(Clone, Debug)]
pub(super) struct Inputs {
    pub(super) shape: Int4Shape,
    /// `rows × K`, exact in BF16.
    pub(super) x: Vec<f32>,
    pub(super) weight: Weight,
    pub(super) packed: Int4,
}

impl Inputs {
    /// Pseudo-random ones.
    pub(super) fn new(shape: Int4Shape, rows: usize) -> Result<Inputs, String> {
        let (n, k) = (shape.rows(), shape.cols());
        let mut random = SplitMix64::new((n * 31 + k) as u64);
        let mut bell = || (0..4).map(|_| random.next_unit() - 0.5).sum::<f64>() as f32;
        let elements = (0..n * k).map(|_| bf16_bits(bell())).collect();
        let weight = Weight { rows: n, cols: k, storage: Storage::Bf16(Shared::owned(elements)) };
        // Rows differ in scale, and a few values stand out, as activations do.
        let x = (0..rows * k)
            .map(|i| {
                let outlier = if i % 97 == 13 { 20.0 } else { 1.0 };
                round_bf16(bell() * outlier * (1 + i / k) as f32)
            })
            .collect();
        let plan = Int4Plan { group: Some(shape.group()), keep: false };
        let packed = Int4::of(&weight, plan).map_err(|e| e.to_string())?;
        Ok(Inputs { shape, x, weight, packed })
    }

    /// The weight of the dequantised values in BF16: what packed weights under `reference` must
    /// have the bits of.
    pub(super) fn dequantised(&self, round: bool) -> Weight {
        let packed = Weight { storage: Storage::Int4(self.packed.clone()), ..self.weight.clone() };
        let values = packed.to_f32();
        let storage = match round {
            true => Storage::Bf16(Shared::owned(values.iter().map(|v| bf16_bits(*v)).collect())),
            false => Storage::F32(Shared::owned(values)),
        };
        Weight { storage, ..self.weight.clone() }
    }

    /// The packed weight, with what prefill reads beside if `keep`.
    pub(super) fn packed(&self, keep: bool) -> Weight {
        let mut packed = self.packed.clone();
        packed.prefill = keep.then(|| Box::new(self.weight.clone()));
        Weight { storage: Storage::Int4(packed), ..self.weight.clone() }
    }
}

/// Y = X·Wᵀ by the region `gemm`, or `gemm_f32`, in steps of `chunk` rows; outputs are filled with
/// NaN before.
pub(super) fn product(
    weight: Weight,
    x: &[f32],
    head: bool,
    policy: Policy,
    threads: usize,
    chunk: usize,
) -> Result<Vec<f32>, String> {
    let at = WeightRef { role: RoleName::MlpUp, layer: Some(0) };
    let (n, k) = (weight.rows, weight.cols);
    let (input, out) = (Buf(0), Buf(1));
    let kind = match head {
        true => OpKind::GemmF32 { x: input, weight: at, out },
        false => OpKind::Gemm { x: input, weight: at, out },
    };
    let plan = Plan {
        buffers: [("x", k), ("y", n)]
            .map(|(name, width)| BufferSpec { name: name.to_owned(), width })
            .into(),
        ops: vec![Op { kind, layer: None, taps: Vec::new() }],
        head_ops: Vec::new(),
        residual: input,
        final_hidden: input,
        logits: input,
        attention_slots: Vec::new(),
        gdn_slots: Vec::new(),
        rope: None,
    };
    let options = CpuOptions { policy, isa: Isa::detect(), threads: Some(threads), poison: true };
    let model = CpuModel::new(plan, HashMap::from([(at, weight)]), &options)?;
    let mut state = model.new_state();
    let mut y = Vec::new();
    for x in x.chunks(chunk * k) {
        let rows = x.len() / k;
        let spans = [Span { rows: 0..rows, position: 0 }];
        let inputs = [(input, x.to_vec())];
        let tokens = vec![0; rows];
        let run = RegionRun { tokens: &tokens, spans: &spans, inputs: &inputs, outputs: &[out] };
        let found = model.region(&run, &mut [state.as_mut()]).map_err(|e| e.to_string())?;
        y.extend(found.into_iter().flatten());
    }
    Ok(y)
}
