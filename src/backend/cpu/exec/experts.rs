//! Operations of mixtures of experts.

use super::super::buffers::Buffers;
use super::super::fast::Repacked;
use super::super::int4::Taken;
use super::super::moe_combine::{moe_combine, moe_shared};
use super::super::moe_experts::{Choices, Expert, Matrix, Order, moe_experts, moe_permute};
use super::super::moe_router::{moe_router, moe_router_logits};
use super::{Context, Executor};
use crate::backend::{OpKind, Plan, WeightRef};
use crate::tensor::Weight;
use crate::units::mutant;
use std::collections::HashMap;

impl Executor {
    /// Executes an operation of a mixture of experts over all rows of a step.
    ///
    /// # Panics
    /// On any other operation.
    pub(super) fn run_experts(&self, op: &OpKind, context: &Context<'_>, b: &mut Buffers) {
        let (isa, round) = (self.isa, self.round);
        match *op {
            OpKind::MoeRouterLogits { x, ref norm, weight, normed, out } => {
                b.with_two([normed, out], |[normed, out], b| {
                    let (norm, weight) = (self.norm(norm), &self.matrices[&weight]);
                    moe_router_logits(isa, b.get(x), norm, weight, normed, out);
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
                let per_row = b.width(index);
                let choices = Choices { order: &order, per_row, phases: &context.phases };
                let mut scratch = inner.map(|buf| b.take(buf));
                let inner_rows = scratch.each_mut().map(Vec::as_mut_slice);
                b.with(out, |out, b| {
                    let experts = &self.experts[&gate];
                    let kernels = (isa, self.kernels);
                    moe_experts(kernels, b.get(x), choices, experts, round, inner_rows, out);
                });
                inner.into_iter().zip(scratch).for_each(|(buf, data)| b.put(buf, data));
            }
            OpKind::MoeCombine { x, index, weights, experts, out } => {
                let order = Order::new(b.get(index), experts);
                let width = b.width(out);
                // Part of a sum is rounded where the parts meet.
                let round = round && (experts.is_whole() || mutant!("expert_part_rounded"));
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
            _ => unreachable!("`{}` is no operation of experts", op.region()),
        }
    }
}

/// How many matrices the weights of experts have.
pub(super) fn counts(plan: &Plan) -> HashMap<WeightRef, usize> {
    let of = |op: &OpKind| match *op {
        OpKind::MoeExperts { experts, gate, up, down, .. } => {
            [gate, up, down].map(|weight| (weight, experts.count)).to_vec()
        }
        _ => Vec::new(),
    };
    plan.all_ops().flat_map(|op| of(&op.kind)).collect()
}

/// Every expert's own matrices: of four bits, in panels where they were repacked, else memory of the
/// whole weights.
pub(super) fn bind(
    plan: &Plan,
    matrices: &HashMap<WeightRef, Weight>,
    repacked: &mut Repacked,
    packed: &mut Taken,
) -> HashMap<WeightRef, Vec<Expert>> {
    let mut all = HashMap::new();
    for op in plan.all_ops() {
        let OpKind::MoeExperts { experts, gate, up, down, .. } = op.kind else { continue };
        let mut wide = |weight: &WeightRef| -> Vec<Matrix> {
            if let Some(panels) = repacked.experts.remove(weight) {
                return panels.into_iter().map(Matrix::Panels).collect();
            }
            let Some(all) = matrices.get(weight) else { return Vec::new() };
            let rows = all.rows / experts.count;
            let slice = |e: usize| all.slice_rows(e * rows..(e + 1) * rows);
            (0..experts.count).map(|e| Matrix::Plain(slice(e))).collect()
        };
        let mut of = |weight: WeightRef| -> Vec<Matrix> {
            let Some(packed) = packed.experts.remove(&weight) else { return wide(&weight) };
            let mut wide = wide(&weight).into_iter();
            packed.into_iter().map(|p| Matrix::Packed(p, wide.next().map(Box::new))).collect()
        };
        let matrices = of(gate).into_iter().zip(of(up)).zip(of(down));
        let expert = |((gate, up), down)| Expert { gate, up, down };
        all.insert(gate, matrices.map(expert).collect());
    }
    all
}
