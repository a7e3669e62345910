//! Rewrites of the plan: what is launched together. Every one is bitwise inert.

use super::joins::{Join, Joins};
use crate::backend::{Buf, BufferSpec, Op, OpKind, Plan, WeightRef};
use std::collections::{BTreeMap, BTreeSet};

/// What is launched at once: operations of the plan by index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Node {
    Single(usize),
    /// Products of one input whose weights lie one after the other.
    Gemms(Vec<usize>),
    /// Two products of one input and the activation of what they give.
    GateUp(Vec<usize>, usize),
    /// `residual_add`, then `rms_norm` of the residual.
    ResidualNorm(usize, usize),
    /// `gdn_conv1d`, `gdn_conv_silu`, `gdn_prepare`.
    GdnInputs(usize, usize, usize),
    /// Norms of heads, ropes and the cache write of a layer, `q_gate_split` before them where there is
    /// one: the first of them, and how many.
    AttentionInputs(usize, usize),
    /// Attention and the gate of its output, which is read where `split` found it.
    GatedAttention {
        core: usize,
        gate: usize,
        split: usize,
    },
}

/// The plan with every fusion of its own undone: what is launched together is decided here, and the
/// values are the same. A gate is split off behind the products that follow it, so that these join
/// the product before it.
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
    for i in 1..plan.ops.len() {
        if let OpKind::QGateSplit { x, q, gate, .. } = plan.ops[i - 1].kind
            && let OpKind::Gemm { x: input, out, .. } = plan.ops[i].kind
            && ![q, gate].contains(&input)
            && ![x, q, gate].contains(&out)
        {
            plan.ops.swap(i - 1, i);
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

/// How many operations from the first on are those of [`Node::AttentionInputs`], 0 for none.
fn attention_inputs(ops: &[Op]) -> usize {
    let kind = |n: usize| ops.get(n).map(|op| &op.kind);
    let split = match kind(0) {
        Some(OpKind::QGateSplit { q, gate, .. }) => Some((*q, *gate)),
        _ => None,
    };
    let first = usize::from(split.is_some());
    let norms: Vec<_> = (first..)
        .map_while(|n| match kind(n) {
            Some(OpKind::PerHeadNorm { x, norm, .. }) => Some((*x, norm.epsilon, norm.style)),
            _ => None,
        })
        .collect();
    let next = first + norms.len();
    let (
        Some(OpKind::Rope { x: q, head_dim, offset: 0, .. }),
        Some(OpKind::Rope { x: k, head_dim: key_dim, offset: 0, .. }),
        Some(OpKind::KvWrite { k: written, v, .. }),
    ) = (kind(next), kind(next + 1), kind(next + 2))
    else {
        return 0;
    };
    let heads_fit = match norms[..] {
        [] => true,
        [(a, e, s), (b, f, t)] => (a, b) == (*q, *k) && e == f && s == t,
        _ => false,
    };
    // The gate is not copied out: attention has to read it itself.
    let gate_fits = split.is_none_or(|(query, gate)| {
        query == *q
            && matches!(
                (kind(next + 3), kind(next + 4)),
                (Some(OpKind::AttentionCore { out, .. }), Some(OpKind::AttentionOutputGate { x, gate: g }))
                    if out == x && *g == gate
            )
    });
    let fits = k == written && q != k && v != k && head_dim == key_dim && heads_fit && gate_fits;
    if fits { next + 3 } else { 0 }
}

/// Nodes of the body: every operation exactly once, in order. `joins` hide buffers between operations.
pub(super) fn nodes(plan: &Plan, groups: &Groups, joins: Joins) -> Vec<Node> {
    let attention = joins.has(Join::Attention);
    let starts: BTreeMap<usize, &Vec<usize>> = groups.groups.iter().map(|g| (g[0], g)).collect();
    let mut nodes = Vec::new();
    let mut i = 0;
    while i < plan.ops.len() {
        let kinds = |n: usize| plan.ops.get(i + n).map(|op| &op.kind);
        if let Some(group) = starts.get(&i) {
            let outputs: Vec<Buf> = group.iter().filter_map(|g| output(&plan.ops[*g])).collect();
            match (kinds(group.len()), &outputs[..]) {
                (Some(OpKind::SiluMul { gate, up, .. }), [a, b])
                    if joins.has(Join::GateUp) && (gate, up) == (a, b) =>
                {
                    nodes.push(Node::GateUp((*group).clone(), i + 2));
                    i += 3;
                }
                _ => {
                    nodes.push(Node::Gemms((*group).clone()));
                    i += group.len();
                }
            }
            continue;
        }
        let inputs = if attention { attention_inputs(&plan.ops[i..]) } else { 0 };
        if inputs > 0 {
            nodes.push(Node::AttentionInputs(i, inputs));
            i += inputs;
            continue;
        }
        if attention && let Some(split) = split_of_attention(plan, i) {
            nodes.push(Node::GatedAttention { core: i, gate: i + 1, split });
            i += 2;
            continue;
        }
        match (kinds(0), kinds(1), kinds(2)) {
            (Some(OpKind::ResidualAdd { residual, .. }), Some(OpKind::RmsNorm { x, .. }), _)
                if joins.has(Join::ResidualNorm) && residual == x =>
            {
                nodes.push(Node::ResidualNorm(i, i + 1));
                i += 2;
            }
            (
                Some(OpKind::GdnConv1d { out, .. }),
                Some(OpKind::GdnConvSilu { x }),
                Some(OpKind::GdnPrepare { qkv, .. }),
            ) if joins.has(Join::GdnInputs) && out == x && x == qkv => {
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

/// Where attention at operation `core` and the gate of its output behind it are [`Node::GatedAttention`]:
/// the operation that splits the gate off, the last one before them in their layer.
fn split_of_attention(plan: &Plan, core: usize) -> Option<usize> {
    let (OpKind::AttentionCore { out, .. }, OpKind::AttentionOutputGate { x, gate: wanted }) =
        (&plan.ops[core].kind, &plan.ops.get(core + 1)?.kind)
    else {
        return None;
    };
    (0..core)
        .rev()
        .take_while(|i| out == x && plan.ops[*i].layer == plan.ops[core].layer)
        .find(|i| matches!(&plan.ops[*i].kind, OpKind::QGateSplit { gate, .. } if gate == wanted))
}

/// Indices of a node's operations.
pub(super) fn operations(node: &Node) -> Vec<usize> {
    match node {
        Node::Single(i) => vec![*i],
        Node::Gemms(members) => members.clone(),
        Node::GateUp(members, silu) => members.iter().chain([silu]).copied().collect(),
        Node::ResidualNorm(a, b) => vec![*a, *b],
        Node::GdnInputs(a, b, c) => vec![*a, *b, *c],
        Node::AttentionInputs(first, count) => (*first..first + count).collect(),
        Node::GatedAttention { core, gate, .. } => vec![*core, *gate],
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
        let found = nodes(&p, &groups, Joins::ALL);
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
        assert_eq!(nodes(&p, &none, Joins::ALL), [Node::ResidualNorm(0, 1)]);
        assert_eq!(nodes(&p, &none, Joins::NONE), [Node::Single(0), Node::Single(1)]);
    }

    #[test]
    fn projections_and_the_activation_of_them_are_one_launch() {
        let silu = |up| OpKind::SiluMul { gate: Buf(1), up: Buf(up), out: Buf(3) };
        let found = |up, fused| {
            let p = plan(vec![gemm(0, 1), gemm(0, 2), silu(up)], &[64; 4]);
            nodes(&p, &Groups::find(&p, |_| true), fused)
        };
        assert_eq!(found(2, Joins::ALL), [Node::GateUp(vec![0, 1], 2)]);
        let apart = [Node::Gemms(vec![0, 1]), Node::Single(2)];
        assert_eq!(found(2, Joins::NONE), apart);
        assert_eq!(found(0, Joins::ALL), apart, "of something else");
    }

    /// normed 0, both 1, q 2, gate 3, k 4, v 5, out 6.
    fn gated_attention(norms: &[usize]) -> Plan {
        let weight = |x| WeightRef { role: RoleName::AttnQNorm, layer: Some(x) };
        let norm = |x: &usize| OpKind::PerHeadNorm {
            x: Buf(*x),
            heads: 1,
            head_dim: 8,
            norm: NormWeight { weight: weight(*x), style: NormStyle::Plain, epsilon: 1e-6 },
        };
        let rope = |x| OpKind::Rope { x: Buf(x), heads: 1, head_dim: 8, offset: 0 };
        let split =
            OpKind::QGateSplit { x: Buf(1), heads: 1, head_dim: 8, q: Buf(2), gate: Buf(3) };
        let mut kinds = vec![gemm(0, 1), split, gemm(0, 4), gemm(0, 5)];
        kinds.extend(norms.iter().map(norm));
        kinds.extend([
            rope(2),
            rope(4),
            OpKind::KvWrite { k: Buf(4), v: Buf(5), slot: 0 },
            OpKind::AttentionCore { q: Buf(2), slot: 0, heads: 1, out: Buf(6), log_sums: None },
            OpKind::AttentionOutputGate { x: Buf(6), gate: Buf(3) },
        ]);
        unfused(plan(kinds, &[8, 16, 8, 8, 8, 8, 8]))
    }

    #[test]
    fn everything_between_projections_and_attention_is_one_launch() {
        let p = gated_attention(&[2, 4]);
        let groups = Groups::find(&p, |_| true);
        assert_eq!(groups.outputs(), [vec![Buf(1), Buf(4), Buf(5)]], "the split gave way");
        let expected = [
            Node::Gemms(vec![0, 1, 2]),
            Node::AttentionInputs(3, 6),
            Node::GatedAttention { core: 9, gate: 10, split: 3 },
        ];
        assert_eq!(nodes(&p, &groups, Joins::ALL), expected);
        let every: Vec<usize> = expected.iter().flat_map(operations).collect();
        assert_eq!(every, (0..11).collect::<Vec<_>>());
        assert_eq!(nodes(&p, &groups, Joins::NONE).len(), 9, "nothing is hidden from captures");
        // A norm of something else runs by itself, before what is left of it.
        let other = nodes(&gated_attention(&[5]), &Groups::default(), Joins::ALL);
        let expected = [
            Node::Single(3),
            Node::Single(4),
            Node::AttentionInputs(5, 3),
            Node::GatedAttention { core: 8, gate: 9, split: 3 },
        ];
        assert_eq!(other[3..], expected);
    }
}
