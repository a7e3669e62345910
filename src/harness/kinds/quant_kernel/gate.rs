//! The gate: cells and how they are decided.

use super::bench::{Inputs, product};
use crate::backend::{DeviceKind, Policy, Region};
use crate::harness::kind::{
    Case, Cell, DeviceUse, Fault, GateKind, KindSpec, Outcome, PlanScope, PolicyUse, RunContext,
};
use crate::harness::kinds::quant_format::definition::{self, Packed};
use crate::harness::plan::Matrix;
use crate::harness::spec::{Expectations, NonEmpty, Select, find};
use crate::tensor::{Difference, Int4Shape, round_bf16};
use serde::Deserialize;

/// Products with packed weights.
#[derive(Debug, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::harness::kinds) struct QuantKernel {
    /// `gemm` or `gemm_f32`.
    region: NonEmpty<Region>,
    matrix: Cells,
    /// Bounds, per selected cells.
    expect: Expectations<Bound>,
}

#[derive(Debug, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
struct Cells {
    /// N and K.
    shape: NonEmpty<[usize; 2]>,
    /// Values along K that share a scale.
    group: NonEmpty<usize>,
    /// Rows of X in one step.
    rows: NonEmpty<usize>,
}

/// What must come out.
#[derive(Debug, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Bound {
    /// Largest difference from FP64, as a share of the largest value that FP64 gives.
    pub(super) max_relative: f64,
    /// The bits must be those of a checkpoint of the dequantised weights, in BF16 where the policy
    /// rounds.
    #[serde(default)]
    pub(super) bits_of_dequantised: bool,
}

impl KindSpec for QuantKernel {
    const NAME: &'static str = "quant_kernel";
    const DEVICE: DeviceUse = DeviceUse::Any;
    const POLICY: PolicyUse = PolicyUse::Listed;
}

impl GateKind for QuantKernel {
    fn cases(&self, _scope: &PlanScope) -> Result<Vec<Case>, Fault> {
        if let Some(other) =
            self.region.iter().find(|r| !matches!(r, Region::Gemm | Region::GemmF32))
        {
            let message = format!("`{other}` has no packed weights; gemm and gemm_f32 have");
            return Err(Fault::at("region", message));
        }
        for row in self.expect.iter() {
            if !(row.then.max_relative.is_finite() && row.then.max_relative > 0.0) {
                return Err(Fault::at("expect", "`max_relative` must be finite and above 0"));
            }
        }
        let cells = &self.matrix;
        for group in cells.group.iter() {
            for [n, k] in cells.shape.iter() {
                Int4Shape::new(*n, *k, *group).map_err(|e| Fault::at("matrix", e.to_string()))?;
            }
        }
        Ok(Matrix::new()
            .axis("shape", &cells.shape)
            .axis("group", &cells.group)
            .axis("rows", &cells.rows)
            .cases(self.region.iter().copied()))
    }

    fn run(&self, cell: &Cell, context: &RunContext) -> Outcome {
        self.trial(cell, context).unwrap_or_else(Outcome::error)
    }

    fn group(&self, _cell: &Cell) -> Option<String> {
        Some("quant_kernel".into())
    }

    fn expectations(&self) -> Vec<&Select> {
        self.expect.iter().map(|row| &row.when).collect()
    }
}

impl QuantKernel {
    fn trial(&self, cell: &Cell, context: &RunContext) -> Result<Outcome, String> {
        if cell.device != DeviceKind::Cpu {
            return Err(format!("products run by themselves on the CPU, not on {}", cell.device));
        }
        let policy = cell.policy.ok_or("the cell has no policy")?;
        let [n, k]: [usize; 2] =
            cell.read_list("shape")?.try_into().map_err(|_| "axis `shape` needs two numbers")?;
        let rows: usize = cell.read("rows")?;
        let head = cell.case.as_deref() == Some(Region::GemmF32.name());
        let shape = Int4Shape::new(n, k, cell.read("group")?).map_err(|e| e.to_string())?;
        let inputs = Inputs::new(shape, rows)?;
        let threads = context.threads;
        let run = |weight, chunk| product(weight, &inputs.x, head, policy, threads, chunk);
        let found = Found {
            together: run(inputs.packed(false), rows)?,
            // One row at a time, and with the weight before quantisation beside: rows of decode
            // are the same.
            alone: run(inputs.packed(true), 1)?,
            dequantised: run(inputs.dequantised(policy.rounds_to_bf16()), rows)?,
        };
        Ok(decide(&expected(&inputs, policy), &found, find(&self.expect, cell)?))
    }
}

/// What the engine gave, three ways.
#[derive(Clone, Debug)]
pub(super) struct Found {
    pub(super) together: Vec<f32>,
    pub(super) alone: Vec<f32>,
    pub(super) dequantised: Vec<f32>,
}

/// The product in FP64 with weights unpacked by the definition.
pub(super) fn expected(inputs: &Inputs, policy: Policy) -> Vec<f64> {
    let packed =
        Packed { codes: inputs.packed.codes.to_vec(), scales: inputs.packed.scales.to_vec() };
    let mut values = definition::unpack(&packed, inputs.shape.group());
    if matches!(policy, Policy::Reference | Policy::Invariant) {
        values.iter_mut().for_each(|v| *v = f64::from(round_bf16(*v as f32)));
    }
    let k = inputs.shape.cols();
    let rows = inputs.x.chunks_exact(k);
    rows.flat_map(|x| {
        values
            .chunks_exact(k)
            .map(|w| w.iter().zip(x).map(|(w, x)| w * f64::from(*x)).sum())
            .collect::<Vec<f64>>()
    })
    .collect()
}

/// Decides from FP64 values and what the engine gave.
pub(super) fn decide(expected: &[f64], found: &Found, bound: &Bound) -> Outcome {
    if let Some(i) = differs(&found.together, &found.alone) {
        return Outcome::fail(format!(
            "value {i}: {:?} among other rows, {:?} alone",
            found.together.get(i),
            found.alone.get(i)
        ));
    }
    if bound.bits_of_dequantised
        && let Some(i) = differs(&found.together, &found.dequantised)
    {
        return Outcome::fail(format!(
            "value {i}: {:?} of packed weights, {:?} of dequantised ones",
            found.together.get(i),
            found.dequantised.get(i)
        ));
    }
    let wanted: Vec<f32> = expected.iter().map(|v| *v as f32).collect();
    let d = match Difference::between(&wanted, &found.together) {
        Ok(d) if d.is_finite() => d,
        Ok(d) => return Outcome::fail(format!("{} of {} are not finite", d.non_finite, d.count)),
        Err(e) => return Outcome::fail(e.to_string()),
    };
    let relative = if d.max_abs == 0.0 { 0.0 } else { d.max_abs / d.largest_expected };
    let outcome = if relative <= bound.max_relative {
        Outcome::pass(format!("{} values, largest relative difference {relative:.1e}", d.count))
    } else {
        Outcome::fail(format!(
            "a difference of {relative:.2e} of the largest value, more than {:.1e}, at element \
             {}: FP64 gives {}, found {}",
            bound.max_relative, d.worst_at, wanted[d.worst_at], found.together[d.worst_at]
        ))
    };
    outcome.with("compared", d.count).number("max_relative", relative)
}

/// The first place where bits differ, or one of two lengths ends.
fn differs(a: &[f32], b: &[f32]) -> Option<usize> {
    let at = a.iter().zip(b).position(|(a, b)| a.to_bits() != b.to_bits());
    at.or_else(|| (a.len() != b.len()).then_some(a.len().min(b.len())))
}
