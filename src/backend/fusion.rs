//! Fusions: rewrites of a plan that keep every value and every rounding.

use super::{Op, OpKind, Plan};
use serde::{Deserialize, Serialize};
use std::fmt;

/// A rewrite, by the region it introduces.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    Hash,
    PartialOrd,
    Ord,
    Serialize,
    Deserialize,
    schemars::JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Fusion {
    /// Gate and up projection and silu(gate) × up in one operation.
    GateUp,
    /// A residual addition and the norm of its result in one operation.
    ResidualNorm,
}

impl Fusion {
    /// Every fusion.
    pub const ALL: [Fusion; 2] = [Fusion::GateUp, Fusion::ResidualNorm];
}

impl fmt::Display for Fusion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Fusion::GateUp => "gate_up",
            Fusion::ResidualNorm => "residual_norm",
        })
    }
}

impl std::str::FromStr for Fusion {
    type Err = String;

    fn from_str(text: &str) -> Result<Fusion, String> {
        Fusion::ALL
            .into_iter()
            .find(|f| f.to_string() == text)
            .ok_or_else(|| format!("unknown fusion `{text}`; fusions are gate_up, residual_norm"))
    }
}

/// The plan with the operations of `fusions` merged wherever they follow each other.
///
/// Buffers that only a merged operation used keep their place but are no longer written, and taps on
/// them are gone; every other tap stays, on the operation that now writes its buffer.
pub fn fuse(mut plan: Plan, fusions: &[Fusion]) -> Plan {
    for fusion in fusions {
        plan.ops = match fusion {
            Fusion::GateUp => rewrite(plan.ops, 3, gate_up),
            Fusion::ResidualNorm => rewrite(plan.ops, 2, residual_norm),
        };
    }
    plan
}

/// Replaces every window of `length` operations that `merged` accepts.
fn rewrite(ops: Vec<Op>, length: usize, merged: fn(&[Op]) -> Option<Op>) -> Vec<Op> {
    let mut result = Vec::with_capacity(ops.len());
    let mut at = 0;
    while at < ops.len() {
        match ops.get(at..at + length).and_then(merged) {
            Some(op) => {
                result.push(op);
                at += length;
            }
            None => {
                result.push(ops[at].clone());
                at += 1;
            }
        }
    }
    result
}

fn gate_up(window: &[Op]) -> Option<Op> {
    let [first, second, last] = window else { return None };
    let OpKind::Gemm { x, weight: gate, out: gate_out } = first.kind else { return None };
    let OpKind::Gemm { x: again, weight: up, out: up_out } = second.kind else { return None };
    let OpKind::SiluMul { gate: g, up: u, out } = last.kind else { return None };
    (x == again && g == gate_out && u == up_out && g != u && out != x).then(|| Op {
        kind: OpKind::GateUp { x, gate, up, out },
        layer: last.layer,
        taps: last.taps.clone(),
    })
}

fn residual_norm(window: &[Op]) -> Option<Op> {
    let [add, norm] = window else { return None };
    let OpKind::ResidualAdd { residual, x } = add.kind else { return None };
    let OpKind::RmsNorm { x: normed, norm: weight, out } = norm.kind else { return None };
    (normed == residual && out != residual && out != x).then(|| Op {
        kind: OpKind::ResidualNorm { residual, x, norm: weight, out },
        layer: add.layer,
        taps: add.taps.iter().chain(&norm.taps).cloned().collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::{Buf, NormWeight, WeightRef};
    use crate::descriptor::{NormStyle, RoleName};

    fn op(kind: OpKind, tap: Option<(&str, Buf)>) -> Op {
        let taps = tap.map(|(name, buf)| (name.to_owned(), buf)).into_iter().collect();
        Op { kind, layer: Some(0), taps }
    }

    fn weight(role: RoleName) -> WeightRef {
        WeightRef { role, layer: Some(0) }
    }

    /// A dense FFN, its residual addition and the next norm; `up_x` is what the up projection reads.
    fn plan(up_x: Buf) -> Plan {
        let [x, gate, up, act, down, residual, normed] = [0, 1, 2, 3, 4, 5, 6].map(Buf);
        let gemm = |role, x, out| OpKind::Gemm { x, weight: weight(role), out };
        let norm = NormWeight {
            weight: weight(RoleName::InputNorm),
            style: NormStyle::Plain,
            epsilon: 1e-5,
        };
        let ops = vec![
            op(gemm(RoleName::MlpGate, x, gate), Some(("mlp_gate.out", gate))),
            op(gemm(RoleName::MlpUp, up_x, up), None),
            op(OpKind::SiluMul { gate, up, out: act }, Some(("silu_mul.out", act))),
            op(gemm(RoleName::MlpDown, act, down), None),
            op(OpKind::ResidualAdd { residual, x: down }, Some(("out", residual))),
            op(
                OpKind::RmsNorm { x: residual, norm, out: normed },
                Some(("input_norm.out", normed)),
            ),
        ];
        Plan {
            buffers: Vec::new(),
            ops,
            head_ops: Vec::new(),
            residual,
            final_hidden: normed,
            logits: act,
            attention_slots: Vec::new(),
            gdn_slots: Vec::new(),
            rope: None,
        }
    }

    #[test]
    fn fusions_merge_neighbours_and_keep_taps_on_what_is_still_written() {
        let fused = fuse(plan(Buf(0)), &Fusion::ALL);
        let regions: Vec<&str> = fused.ops.iter().map(|op| op.kind.region().name()).collect();
        assert_eq!(regions, ["gate_up", "gemm", "residual_norm"]);
        let taps: Vec<&str> =
            fused.ops.iter().flat_map(|op| &op.taps).map(|(name, _)| name.as_str()).collect();
        assert_eq!(taps, ["silu_mul.out", "out", "input_norm.out"]);
        assert_eq!(fuse(plan(Buf(0)), &[]), plan(Buf(0)));
        assert_eq!(fuse(plan(Buf(0)), &[Fusion::GateUp]).ops.len(), 4);
    }

    #[test]
    fn projections_of_different_rows_stay_apart() {
        assert_eq!(fuse(plan(Buf(7)), &[Fusion::GateUp]), plan(Buf(7)));
    }
}
