//! Rewrites of the plan: what is launched together. Every one is bitwise inert.

use crate::backend::{Buf, BufferSpec, Op, OpKind, Plan, WeightRef};
use std::collections::{BTreeMap, BTreeSet};

/// What is launched at once: operations of the plan by index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Node {
    Single(usize),
    /// Products of one input whose weights lie one after the other.
    Gemms(Vec<usize>),
    /// `residual_add`, then `rms_norm` of the residual.
    ResidualNorm(usize, usize),
    /// `gdn_conv1d`, `gdn_conv_silu`, `gdn_prepare`, for steps of one row a sequence.
    GdnInputs(usize, usize, usize),
}

/// The plan with every fusion of its own undone: what is launched together is decided here, and the
/// values are the same.
pub(super) fn unfused(mut plan: Plan) -> Plan {
    let ops = std::mem::take(&mut plan.ops);
    for op in ops {
        let single = |kind, taps| Op { kind, layer: op.layer, taps };
        match op.kind {
            OpKind::GateUp { x, gate, up, out } => {
                let width = plan.buffers[out.0].width;
                let g = named(&mut plan, "gate_up_gate", width);
                let u = named(&mut plan, "gate_up_up", width);
                let taps = Vec::new();
                plan.ops.push(single(OpKind::Gemm { x, weight: gate, out: g }, taps.clone()));
                plan.ops.push(single(OpKind::Gemm { x, weight: up, out: u }, taps));
                plan.ops.push(single(OpKind::SiluMul { gate: g, up: u, out }, op.taps));
            }
            OpKind::ResidualNorm { residual, x, norm, out } => {
                let add = OpKind::ResidualAdd { residual, x };
                plan.ops.push(single(add, Vec::new()));
                plan.ops.push(single(OpKind::RmsNorm { x: residual, norm, out }, op.taps));
            }
            kind => plan.ops.push(Op { kind, layer: op.layer, taps: op.taps }),
        }
    }
    plan
}

/// The buffer of a name, made on first use.
fn named(plan: &mut Plan, name: &str, width: usize) -> Buf {
    if let Some(i) = plan.buffers.iter().position(|b| b.name == name && b.width == width) {
        return Buf(i);
    }
    plan.buffers.push(BufferSpec { name: name.to_owned(), width });
    Buf(plan.buffers.len() - 1)
}

/// Products that are one launch: their weights are stored one after the other, their outputs are
/// columns of one buffer.
#[derive(Clone, Debug, Default)]
pub(super) struct Groups {
    /// Operation indices of every group, in plan order.
    groups: Vec<Vec<usize>>,
    /// Output buffers of the distinct groups.
    outputs: Vec<Vec<Buf>>,
}

impl Groups {
    /// Finds groups. `fits(weight)` says whether a weight is stored as the matrix kernels take it
    /// and how many columns it has.
    pub(super) fn find(plan: &Plan, fits: impl Fn(WeightRef) -> bool) -> Groups {
        let mut groups = Groups::default();
        let mut i = 0;
        while i < plan.ops.len() {
            let run = run_of_products(&plan.ops[i..], &fits);
            let members: Vec<usize> = (i..i + run).collect();
            if run > 1 && groups.admit(plan, &members) {
                groups.groups.push(members);
            }
            i += run.max(1);
        }
        groups
    }

    /// Whether the outputs of `members` can be columns of one buffer everywhere.
    fn admit(&mut self, plan: &Plan, members: &[usize]) -> bool {
        let outputs: Vec<Buf> = members.iter().filter_map(|i| output(&plan.ops[*i])).collect();
        let distinct: BTreeSet<Buf> = outputs.iter().copied().collect();
        let whole = outputs.iter().all(|b| plan.buffers[b.0].width.is_multiple_of(8));
        if distinct.len() != outputs.len() || !whole {
            return false;
        }
        if self.outputs.contains(&outputs) {
            return true;
        }
        if self.outputs.iter().flatten().any(|b| distinct.contains(b)) {
            return false;
        }
        self.outputs.push(outputs);
        true
    }

    /// Output buffers of the distinct groups.
    pub(super) fn outputs(&self) -> &[Vec<Buf>] {
        &self.outputs
    }

    /// Weights of every group, in order.
    pub(super) fn weights(&self, plan: &Plan) -> Vec<Vec<WeightRef>> {
        let weight = |i: &usize| match plan.ops[*i].kind {
            OpKind::Gemm { weight, .. } => Some(weight),
            _ => None,
        };
        self.groups.iter().map(|g| g.iter().filter_map(weight).collect()).collect()
    }
}

fn output(op: &Op) -> Option<Buf> {
    match op.kind {
        OpKind::Gemm { out, .. } => Some(out),
        _ => None,
    }
}

/// Consecutive products of the same input, none of which writes it.
fn run_of_products(ops: &[Op], fits: &impl Fn(WeightRef) -> bool) -> usize {
    let Some(OpKind::Gemm { x: input, .. }) = ops.first().map(|op| &op.kind) else { return 0 };
    ops.iter()
        .take_while(|op| {
            matches!(&op.kind, OpKind::Gemm { x, weight, out }
                if x == input && out != input && fits(*weight))
        })
        .count()
}

/// Nodes of the body: every operation exactly once, in order. `fused` allows what hides a buffer
/// between two operations.
pub(super) fn nodes(plan: &Plan, groups: &Groups, fused: bool, one_row: bool) -> Vec<Node> {
    let starts: BTreeMap<usize, &Vec<usize>> = groups.groups.iter().map(|g| (g[0], g)).collect();
    let mut nodes = Vec::new();
    let mut i = 0;
    while i < plan.ops.len() {
        let kinds = |n: usize| plan.ops.get(i + n).map(|op| &op.kind);
        if let Some(group) = starts.get(&i) {
            nodes.push(Node::Gemms((*group).clone()));
            i += group.len();
            continue;
        }
        match (kinds(0), kinds(1), kinds(2)) {
            (Some(OpKind::ResidualAdd { residual, .. }), Some(OpKind::RmsNorm { x, .. }), _)
                if fused && residual == x =>
            {
                nodes.push(Node::ResidualNorm(i, i + 1));
                i += 2;
            }
            (
                Some(OpKind::GdnConv1d { out, .. }),
                Some(OpKind::GdnConvSilu { x }),
                Some(OpKind::GdnPrepare { qkv, .. }),
            ) if fused && one_row && out == x && x == qkv => {
                nodes.push(Node::GdnInputs(i, i + 1, i + 2));
                i += 3;
            }
            _ => {
                nodes.push(Node::Single(i));
                i += 1;
            }
        }
    }
    nodes
}

/// Indices of a node's operations.
pub(super) fn operations(node: &Node) -> Vec<usize> {
    match node {
        Node::Single(i) => vec![*i],
        Node::Gemms(members) => members.clone(),
        Node::ResidualNorm(a, b) => vec![*a, *b],
        Node::GdnInputs(a, b, c) => vec![*a, *b, *c],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::NormWeight;
    use crate::descriptor::{NormStyle, RoleName};

    fn plan(kinds: Vec<OpKind>, widths: &[usize]) -> Plan {
        let op = |kind| Op { kind, layer: Some(0), taps: Vec::new() };
        let buffer = |(i, w): (usize, &usize)| BufferSpec { name: i.to_string(), width: *w };
        Plan {
            buffers: widths.iter().enumerate().map(buffer).collect(),
            ops: kinds.into_iter().map(op).collect(),
            head_ops: Vec::new(),
            residual: Buf(0),
            final_hidden: Buf(0),
            logits: Buf(0),
            attention_slots: Vec::new(),
            gdn_slots: Vec::new(),
            rope: None,
        }
    }

    fn gemm(x: usize, out: usize) -> OpKind {
        let weight = WeightRef { role: RoleName::AttnQ, layer: Some(out) };
        OpKind::Gemm { x: Buf(x), weight, out: Buf(out) }
    }

    #[test]
    fn products_of_one_input_are_one_launch_if_outputs_are_whole_pieces() {
        let p = plan(vec![gemm(0, 1), gemm(0, 2), gemm(1, 3)], &[64, 64, 16, 8]);
        let groups = Groups::find(&p, |_| true);
        assert_eq!(groups.outputs(), [vec![Buf(1), Buf(2)]]);
        let found = nodes(&p, &groups, true, false);
        assert_eq!(found, [Node::Gemms(vec![0, 1]), Node::Single(2)]);
        let ragged = plan(vec![gemm(0, 1), gemm(0, 2)], &[64, 64, 6]);
        assert!(Groups::find(&ragged, |_| true).outputs().is_empty());
        let other = Groups::find(&p, |w| w.layer != Some(2));
        assert!(other.outputs().is_empty(), "a weight of another type joins no group");
    }

    #[test]
    fn a_sum_and_the_norm_of_it_are_one_launch_when_nothing_looks_between() {
        let weight = WeightRef { role: RoleName::PostNorm, layer: Some(0) };
        let norm = NormWeight { weight, style: NormStyle::Plain, epsilon: 1e-6 };
        let kinds = vec![
            OpKind::ResidualAdd { residual: Buf(0), x: Buf(1) },
            OpKind::RmsNorm { x: Buf(0), norm, out: Buf(2) },
        ];
        let p = plan(kinds, &[8, 8, 8]);
        let none = Groups::default();
        assert_eq!(nodes(&p, &none, true, true), [Node::ResidualNorm(0, 1)]);
        assert_eq!(nodes(&p, &none, false, true), [Node::Single(0), Node::Single(1)]);
    }
}
