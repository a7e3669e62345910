//! The kind: its keys, its cells, and how one is decided.

use super::fp64;
use super::inputs::{
    AttentionInputs, AttentionShape, GdnInputs, GdnShape, LatentInputs, LatentShape,
};
use super::run::{self, Execution};
use crate::backend::{DeviceKind, Region};
use crate::harness::kind::{
    Case, Cell, DeviceUse, Fault, GateKind, KindSpec, Outcome, PlanScope, PolicyUse, RunContext,
    Verdict,
};
use crate::harness::plan::Matrix;
use crate::harness::spec::{Expectations, NonEmpty, Select, find};
use crate::tensor::Difference;
use serde::Deserialize;

/// A core and the shapes in which it is compared with its definition.
#[derive(Debug, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::harness::kinds) struct CoreReference {
    /// `attention_core`, `mla_attention` or `gdn_core`.
    region: Region,
    matrix: Shapes,
    /// Bounds, per selected cells.
    expect: Expectations<Bound>,
}

/// Shapes; inputs are pseudo-random and exact in BF16.
#[derive(Debug, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
struct Shapes {
    /// Query and key/value heads, or key and value heads.
    #[serde(default)]
    heads: Option<NonEmpty<[usize; 2]>>,
    /// Dimension of a head; key and value dimension for `gdn_core`.
    #[serde(default)]
    head_dim: Option<NonEmpty<[usize; 2]>>,
    /// In place of both for `mla_attention`: heads, latent, nope, rope and value dimensions.
    #[serde(default)]
    mla: Option<NonEmpty<[usize; 5]>>,
    tokens: NonEmpty<usize>,
    /// Keys that a query of `attention_core` sees, its own included. Left out, all.
    #[serde(default)]
    window: Option<NonEmpty<usize>>,
    /// Tokens of one step.
    chunk_tokens: NonEmpty<usize>,
}

/// Largest differences, as shares of the largest value expected.
#[derive(Debug, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::harness::kinds) struct Bound {
    pub(in crate::harness::kinds) max_relative: f64,
}

impl Bound {
    /// Requires bounds that something can exceed.
    pub(in crate::harness::kinds) fn check(rows: &Expectations<Bound>) -> Result<(), Fault> {
        let is_bound = |row: &Bound| row.max_relative.is_finite() && row.max_relative > 0.0;
        match rows.iter().all(|row| is_bound(&row.then)) {
            true => Ok(()),
            false => Err(Fault::at("expect", "`max_relative` must be finite and above 0")),
        }
    }
}

impl KindSpec for CoreReference {
    const NAME: &'static str = "core_reference";
    const DEVICE: DeviceUse = DeviceUse::Any;
    const POLICY: PolicyUse = PolicyUse::Listed;
}

impl GateKind for CoreReference {
    fn cases(&self, _scope: &PlanScope) -> Result<Vec<Case>, Fault> {
        let shapes = &self.matrix;
        let matrix = match (self.region, &shapes.heads, &shapes.head_dim, &shapes.mla) {
            (Region::AttentionCore | Region::GdnCore, Some(heads), Some(head_dim), None) => {
                Matrix::new().axis("heads", heads).axis("head_dim", head_dim)
            }
            (Region::MlaAttention, None, None, Some(mla)) => Matrix::new().axis("mla", mla),
            (Region::AttentionCore | Region::GdnCore, ..) => {
                return Err(Fault::at("matrix", "expected `heads` and `head_dim`, and no `mla`"));
            }
            (Region::MlaAttention, ..) => {
                return Err(Fault::at(
                    "matrix",
                    "expected `mla` in place of `heads` and `head_dim`",
                ));
            }
            (region, ..) => {
                let message = format!("`{region}` has no FP64 definition here");
                return Err(Fault::at("region", message));
            }
        };
        Bound::check(&self.expect)?;
        let mut matrix = matrix.axis("tokens", &shapes.tokens);
        if let Some(window) = &shapes.window {
            if self.region != Region::AttentionCore || window.contains(&0) {
                let why = "is of `attention_core`, and holds a query's own key";
                return Err(Fault::at("matrix", format!("`window` {why}")));
            }
            matrix = matrix.axis("window", window);
        }
        Ok(matrix.axis("chunk_tokens", &shapes.chunk_tokens).cases([self.region]))
    }

    fn run(&self, cell: &Cell, context: &RunContext) -> Outcome {
        self.trial(cell, context).unwrap_or_else(Outcome::error)
    }

    fn group(&self, _cell: &Cell) -> Option<String> {
        Some(self.region.to_string())
    }

    fn expectations(&self) -> Vec<&Select> {
        self.expect.iter().map(|row| &row.when).collect()
    }
}

impl CoreReference {
    fn trial(&self, cell: &Cell, context: &RunContext) -> Result<Outcome, String> {
        let tokens: usize = cell.read("tokens")?;
        let how = Execution {
            device: cell.device,
            policy: cell.policy.ok_or("the cell has no policy")?,
            threads: context.threads,
            chunk_tokens: cell.read("chunk_tokens")?,
        };
        let bound = find(&self.expect, cell)?;
        if self.region == Region::MlaAttention {
            let mla = cell.read_list("mla")?;
            let [heads, latent, nope, rope, value] = mla[..] else {
                return Err("axis `mla` needs five numbers".into());
            };
            let shape = LatentShape { tokens, heads, latent, nope, rope, value };
            let inputs = LatentInputs::new(shape);
            let key = format!("fp64 {shape:?}");
            let expected = context
                .cache
                .get_or_make(&key, || Ok::<_, String>(fp64::latent_attention(&inputs)))?;
            let out = run::latent_attention(&inputs, how)?;
            return Ok(decide(&[("out", expected.to_vec(), out)], bound));
        }
        let pair = |axis: &str| -> Result<[usize; 2], String> {
            let list = cell.read_list(axis)?;
            list.try_into().map_err(|_| format!("axis `{axis}` needs two numbers"))
        };
        let (heads, dims) = (pair("heads")?, pair("head_dim")?);
        let compared = if self.region == Region::AttentionCore {
            let [head_dim, value_dim] = dims;
            if head_dim != value_dim {
                return Err("attention has one head_dim: give it twice".into());
            }
            let window = self.matrix.window.as_ref().map(|_| cell.read("window")).transpose()?;
            let [heads, kv_heads] = heads;
            let shape = AttentionShape { tokens, heads, kv_heads, head_dim, window };
            let inputs = AttentionInputs::new(shape);
            let key = format!("fp64 {shape:?}");
            let expected =
                context.cache.get_or_make(&key, || Ok::<_, String>(fp64::attention(&inputs)))?;
            let out = run::attention(&inputs, how)?;
            if how.device == DeviceKind::Cuda {
                let asked = run::attention_asked(&inputs, how, true)?;
                if let Some(complaint) = log_sums_complaint(&inputs, &out, &asked) {
                    return Ok(Outcome::fail(complaint));
                }
            }
            vec![("out", expected.to_vec(), out)]
        } else {
            let shape = GdnShape {
                tokens,
                key_heads: heads[0],
                value_heads: heads[1],
                key_dim: dims[0],
                value_dim: dims[1],
            };
            let inputs = GdnInputs::new(shape);
            let key = format!("fp64 {shape:?}");
            let expected = context
                .cache
                .get_or_make(&key, || Ok::<_, String>(fp64::gated_delta_net(&inputs)))?;
            let (out, state) = run::gated_delta_net(&inputs, how)?;
            vec![("out", expected.0.clone(), out), ("state", expected.1.clone(), state)]
        };
        Ok(decide(&compared, bound))
    }
}

/// Largest difference of ln Σ exp(score) from FP64, as a share of the largest: FP32 sums of FP32 scores.
const LOG_SUM_RELATIVE: f64 = 1e-5;

/// What is wrong with the sums of attention, or with the output when they are asked for: it must have the
/// bits of `out`.
pub(super) fn log_sums_complaint(
    inputs: &AttentionInputs,
    out: &[f32],
    asked: &(Vec<f32>, Vec<f32>),
) -> Option<String> {
    let bits = |x: &[f32]| x.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
    if bits(out) != bits(&asked.0) {
        return Some("`out` has other bits when `log_sums` is asked for".to_owned());
    }
    let bound = Bound { max_relative: LOG_SUM_RELATIVE };
    let sums = decide(&[("log_sums", fp64::log_sums(inputs), asked.1.clone())], &bound);
    (sums.verdict != Verdict::Pass).then_some(sums.message)
}

/// Decides from (name, expected values, found values).
pub(in crate::harness::kinds) fn decide(
    compared: &[(impl AsRef<str>, Vec<f64>, Vec<f32>)],
    bound: &Bound,
) -> Outcome {
    let mut complaints = Vec::new();
    let mut worst: f64 = 0.0;
    let mut count = 0;
    for (name, expected, found) in compared {
        let name = name.as_ref();
        let expected: Vec<f32> = expected.iter().map(|x| *x as f32).collect();
        let d = match Difference::between(&expected, found) {
            Ok(d) if d.is_finite() => d,
            Ok(d) => {
                complaints.push(format!("{} of {} `{name}` are not finite", d.non_finite, d.count));
                continue;
            }
            Err(e) => {
                complaints.push(format!("`{name}`: {e}"));
                continue;
            }
        };
        let relative = if d.max_abs == 0.0 { 0.0 } else { d.max_abs / d.largest_expected };
        worst = worst.max(relative);
        count += d.count;
        if relative > bound.max_relative {
            complaints.push(format!(
                "`{name}` differs by {relative:.2e} of its largest value, more than {:.1e}, at \
                 element {}: expected {}, found {}",
                bound.max_relative, d.worst_at, expected[d.worst_at], found[d.worst_at]
            ));
        }
    }
    let outcome = if complaints.is_empty() {
        Outcome::pass(format!("{count} values, largest relative difference {worst:.1e}"))
    } else {
        Outcome::fail(complaints.join("; "))
    };
    outcome.with("compared", count).number("max_relative", worst)
}
