//! `gdn_extremes`: the gated delta net where decays are extreme, from the projections on.

use super::fp64;
use super::inputs::{GdnInputs, GdnShape};
use super::kind::{Bound, decide};
use super::run::{self, Execution, Projections};
use crate::backend::DeviceKind;
use crate::harness::kind::{
    Case, Cell, DeviceUse, Fault, GateKind, KindSpec, Outcome, PlanScope, PolicyUse, RunContext,
};
use crate::harness::plan::Matrix;
use crate::harness::spec::{Expectations, NonEmpty, Select, find};
use serde::Deserialize;

/// Decays that overflow, underflow or vanish, against the recurrence in FP64.
#[derive(Debug, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::harness::kinds) struct GdnExtremes {
    /// Key and value heads.
    heads: NonEmpty<[usize; 2]>,
    /// Key and value dimension of a head.
    head_dim: NonEmpty<[usize; 2]>,
    /// Tokens of one step.
    chunk_tokens: NonEmpty<usize>,
    /// Bounds, per selected cells.
    expect: Expectations<Bound>,
}

/// An extreme by name: tokens, A_log, dt_bias, and the pre-activation `a` of a token.
#[derive(Clone, Copy)]
struct Extreme {
    name: &'static str,
    tokens: usize,
    a_log: f32,
    dt_bias: f32,
    /// From the token and a pseudo-random number in [−1, 1).
    a: fn(usize, f32) -> f32,
}

/// Tokens at which a single gate is extreme: the last row of a group, the first of the next, and one
/// in its middle.
const SINGLE: [usize; 3] = [63, 64, 100];

const EXTREMES: &[Extreme] = &[
    // softplus(27.63) = 27.63 = −ln 1e−12.
    Extreme { name: "decay_1e-12", tokens: 130, a_log: 0.0, dt_bias: 0.0, a: |_, _| 27.631 },
    Extreme { name: "a_log_100", tokens: 130, a_log: 100.0, dt_bias: -200.0, a: |_, x| x },
    Extreme { name: "gate_0", tokens: 4096, a_log: 0.0, dt_bias: 0.0, a: |_, _| -1e30 },
    Extreme {
        name: "one_token_1e3",
        tokens: 200,
        a_log: 0.0,
        dt_bias: 0.0,
        a: |t, x| single(t, x, 1e3),
    },
    Extreme {
        name: "one_token_1e30",
        tokens: 200,
        a_log: 0.0,
        dt_bias: 0.0,
        a: |t, x| single(t, x, 1e30),
    },
];

fn single(token: usize, x: f32, extreme: f32) -> f32 {
    if SINGLE.contains(&token) { extreme } else { x - 3.0 }
}

impl KindSpec for GdnExtremes {
    const NAME: &'static str = "gdn_extremes";
    const DEVICE: DeviceUse = DeviceUse::Any;
    const POLICY: PolicyUse = PolicyUse::Listed;
}

impl GateKind for GdnExtremes {
    fn cases(&self, _scope: &PlanScope) -> Result<Vec<Case>, Fault> {
        Bound::check(&self.expect)?;
        Ok(Matrix::new()
            .axis("heads", &self.heads)
            .axis("head_dim", &self.head_dim)
            .axis("chunk_tokens", &self.chunk_tokens)
            .cases(EXTREMES.iter().map(|e| e.name)))
    }

    fn run(&self, cell: &Cell, context: &RunContext) -> Outcome {
        self.trial(cell, context).unwrap_or_else(Outcome::error)
    }

    fn group(&self, _cell: &Cell) -> Option<String> {
        Some("gdn_core".to_owned())
    }

    fn expectations(&self) -> Vec<&Select> {
        self.expect.iter().map(|row| &row.when).collect()
    }
}

impl GdnExtremes {
    fn trial(&self, cell: &Cell, context: &RunContext) -> Result<Outcome, String> {
        if cell.device != DeviceKind::Cpu {
            return Err(format!("cores run by themselves on the CPU, not on {}", cell.device));
        }
        let pair = |axis: &str| -> Result<[usize; 2], String> {
            cell.read_list(axis)?.try_into().map_err(|_| format!("`{axis}` needs two numbers"))
        };
        let ([key_heads, value_heads], [key_dim, value_dim]) = (pair("heads")?, pair("head_dim")?);
        let extreme = EXTREMES.iter().find(|e| Some(e.name) == cell.case.as_deref());
        let extreme = extreme.ok_or("no extreme has this name")?;
        let tokens = extreme.tokens;
        let shape = GdnShape { tokens, key_heads, value_heads, key_dim, value_dim };
        let projections = projections(shape, extreme);
        let how = Execution {
            device: cell.device,
            policy: cell.policy.ok_or("the cell has no policy")?,
            threads: context.threads,
            chunk_tokens: cell.read("chunk_tokens")?,
        };
        let key = format!("extreme {} {shape:?}", extreme.name);
        let expected = context.cache.get_or_make(&key, || {
            Ok::<_, String>(fp64::gated_delta_net(&prepared(&projections)))
        })?;
        let (out, state) = run::projected_gated_delta_net(&projections, how)?;
        let compared = [("out", expected.0.clone(), out), ("state", expected.1.clone(), state)];
        Ok(decide(&compared, find(&self.expect, cell)?))
    }
}

/// The rows that the gated delta net receives.
fn projections(shape: GdnShape, extreme: &Extreme) -> Projections {
    let GdnShape { tokens, value_heads, .. } = shape;
    let mild = GdnInputs::new(shape);
    let keys = shape.key_heads * shape.key_dim;
    let values = value_heads * shape.value_dim;
    let mut qkv = Vec::with_capacity(tokens * (2 * keys + values));
    for token in 0..tokens {
        qkv.extend_from_slice(&mild.q[token * keys..][..keys]);
        qkv.extend_from_slice(&mild.k[token * keys..][..keys]);
        qkv.extend_from_slice(&mild.v[token * values..][..values]);
    }
    // In [−1, 1), from rates in [0, 1).
    let noise = mild.beta.iter().map(|x| 2.0 * x - 1.0);
    let a = noise.enumerate().map(|(i, x)| (extreme.a)(i / value_heads, x)).collect();
    let b = mild.beta.iter().map(|x| 4.0 * x - 2.0).collect();
    Projections { shape, qkv, a, b, a_log: extreme.a_log, dt_bias: extreme.dt_bias }
}

/// What the definition makes of them, in FP64: unit q and k, g = −e^A·softplus(a + dt), β = σ(b).
fn prepared(p: &Projections) -> GdnInputs {
    let GdnShape { tokens, key_heads, value_heads, key_dim, value_dim } = p.shape;
    let (keys, values) = (key_heads * key_dim, value_heads * value_dim);
    let unit = |head: &[f32]| -> Vec<f32> {
        let squares: f64 = head.iter().map(|x| f64::from(*x).powi(2)).sum();
        head.iter().map(|x| (f64::from(*x) / (squares + 1e-6).sqrt()) as f32).collect()
    };
    let rows = || p.qkv.chunks_exact(2 * keys + values);
    let units = |from: usize| {
        rows().flat_map(|row| row[from..from + keys].chunks(key_dim).flat_map(unit)).collect()
    };
    let softplus = |x: f64| if x > 30.0 { x } else { x.exp().ln_1p() };
    let log_decay = |a: &f32| {
        let x = f64::from(*a) + f64::from(p.dt_bias);
        -(f64::from(p.a_log).exp() * softplus(x)) as f32
    };
    let sigmoid = |b: &f32| (1.0 / (1.0 + (-f64::from(*b)).exp())) as f32;
    debug_assert_eq!(rows().count(), tokens);
    GdnInputs {
        shape: p.shape,
        q: units(0),
        k: units(keys),
        v: rows().flat_map(|row| row[2 * keys..].to_vec()).collect(),
        log_decay: p.a.iter().map(log_decay).collect(),
        beta: p.b.iter().map(sigmoid).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::Policy;
    use crate::harness::kind::Verdict;

    #[test]
    fn extremes_hold_and_a_wrong_gate_does_not() {
        let shape =
            GdnShape { tokens: 200, key_heads: 1, value_heads: 2, key_dim: 16, value_dim: 8 };
        let (device, policy) = (DeviceKind::Cpu, Policy::F32);
        let how = Execution { device, policy, threads: 1, chunk_tokens: 100 };
        let bound = Bound { max_relative: 1e-4 };
        for extreme in EXTREMES {
            let shape = GdnShape { tokens: extreme.tokens, ..shape };
            let projections = projections(shape, extreme);
            let found = run::projected_gated_delta_net(&projections, how).unwrap();
            let verdict = |change: &dyn Fn(&mut GdnInputs)| {
                let mut inputs = prepared(&projections);
                change(&mut inputs);
                let (out, state) = fp64::gated_delta_net(&inputs);
                let compared = [("out", out, found.0.clone()), ("state", state, found.1.clone())];
                decide(&compared, &bound).verdict
            };
            assert_eq!(verdict(&|_| ()), Verdict::Pass, "{}", extreme.name);
            let mild = |i: &mut GdnInputs| i.log_decay[2 * 64..2 * 65].fill(-0.01);
            if extreme.name != "a_log_100" {
                assert_eq!(verdict(&mild), Verdict::Fail, "{}", extreme.name);
            }
            let lost = |i: &mut GdnInputs| i.beta[2 * 90..2 * 91].fill(0.0);
            assert_eq!(verdict(&lost), Verdict::Fail, "{}", extreme.name);
        }
    }
}
