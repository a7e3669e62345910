//! Matrix products of the executor: packed, in panels, or plain; and which of them share a job.

use super::super::buffers::Buffers;
use super::super::elementwise::silu_mul;
use super::super::fast;
use super::super::gemm::gemm;
use super::super::gemm_part::gemm_part;
use super::super::int4::{self, Reads, Rounding};
use super::super::state::CpuState;
use super::{Context, Executor};
use crate::backend::{Op, OpKind, Region, WeightRef};
use crate::units::mutant;

impl Executor {
    /// Executes the first of `ops`. Under `fast`, products of the same rows that follow it are executed
    /// with it, as one job: threads meet once instead of after each. Returns how many were executed.
    pub(in super::super) fn run_next(
        &self,
        ops: &[Op],
        context: &Context<'_>,
        b: &mut Buffers,
        states: &mut [&mut CpuState],
    ) -> usize {
        let count = if self.fast.is_some() { together(ops) } else { 1 };
        if count == 1 {
            self.run(&ops[0].kind, context, b, states);
            return 1;
        }
        self.begin(Region::Gemm);
        let mut input = None;
        let mut outs = Vec::with_capacity(count);
        for op in &ops[..count] {
            if let OpKind::Gemm { x, weight, out } = op.kind {
                input = Some(x);
                outs.push((weight, out, b.take(out)));
            }
        }
        if let Some(x) = input {
            let products = outs.iter_mut().map(|(weight, _, out)| (*weight, out.as_mut_slice()));
            let rows = b.get(x);
            self.products(products.collect(), rows, rows.len() / b.width(x), context);
        }
        outs.into_iter().for_each(|(_, buf, out)| b.put(buf, out));
        count
    }

    /// Several products with the same rows: one job if one kernel executes all of them.
    fn products(
        &self,
        mut products: Vec<(WeightRef, &mut [f32])>,
        x: &[f32],
        tokens: usize,
        context: &Context<'_>,
    ) {
        let round = self.round;
        let kernels: Vec<Kernel<'_>> =
            products.iter().map(|(w, _)| self.kernel(w, context, tokens)).collect();
        let panels: Option<Vec<_>> = kernels.iter().map(Kernel::panels).collect();
        if let Some(panels) = panels {
            let outs = products.iter_mut().map(|(_, out)| &mut **out);
            let job = panels.into_iter().zip(outs);
            let job = job.map(|(weight, out)| fast::Product { weight, up: None, out, round });
            return fast::products(self.kernels, x, job);
        }
        let packed: Option<Vec<_>> = kernels.iter().map(Kernel::packed).collect();
        match packed {
            Some(packed) if int4::of_one_group(&packed) => {
                let outs = products.iter_mut().map(|(_, out)| &mut **out);
                let job = packed.into_iter().zip(outs);
                let job = job.map(|(panel, out)| int4::Product { panel, out, round });
                int4::int4_products(self.isa, x, job);
            }
            _ => products.iter_mut().for_each(|(w, out)| self.product(w, x, context, out, round)),
        }
    }

    /// What executes a product of `tokens` rows.
    fn kernel(&self, weight: &WeightRef, context: &Context<'_>, tokens: usize) -> Kernel<'_> {
        let wide = || self.panels.get(weight).map_or(Kernel::Other, Kernel::Panels);
        match self.packed.get(weight).map(|packed| packed.reads(&context.phases, tokens)) {
            None | Some(Reads::Wide) => wide(),
            Some(Reads::Panel(panel)) => Kernel::Packed(panel),
            Some(Reads::Other) => Kernel::Other,
        }
    }

    /// Regions `gemm` and `gemm_f32`.
    pub(super) fn product(
        &self,
        weight: &WeightRef,
        x: &[f32],
        context: &Context<'_>,
        out: &mut [f32],
        round: bool,
    ) {
        if let Some(packed) = self.packed.get(weight) {
            let rounding = Rounding { weights: self.round, results: round };
            let wide = |x: &[f32], out: &mut [f32]| self.wide(weight, x, out, round);
            return packed.product(self.isa, x, &context.phases, wide, out, rounding);
        }
        self.wide(weight, x, out, round);
    }

    /// The product with a weight that is not packed.
    fn wide(&self, weight: &WeightRef, x: &[f32], out: &mut [f32], round: bool) {
        match self.panels.get(weight) {
            Some(panels) => fast::gemm(self.kernels, x, panels, out, round),
            None => gemm(self.isa, x, &self.matrices[weight], out, round),
        }
    }

    /// Region `gemm` over this rank's part of K: FP32 sums.
    pub(super) fn part(
        &self,
        weight: &WeightRef,
        x: &[f32],
        context: &Context<'_>,
        segments: usize,
        out: &mut [f32],
    ) {
        let wide = |x: &[f32], out: &mut [f32]| match self.panels.get(weight) {
            Some(panels) => fast::gemm(self.kernels, x, panels, out, false),
            None => gemm_part(self.isa, x, &self.matrices[weight], segments, out),
        };
        match self.packed.get(weight) {
            Some(packed) => {
                packed.part(self.isa, x, &context.phases, wide, segments, out, self.round);
            }
            None => wide(x, out),
        }
    }

    /// Region `gate_up`.
    pub(super) fn gate_up(
        &self,
        weights: [&WeightRef; 2],
        x: &[f32],
        context: &Context<'_>,
        out: &mut [f32],
    ) {
        let [gate, up] = weights;
        let weights = if mutant!("fused_gate_up_swapped") { [up, gate] } else { weights };
        let packed = weights.iter().any(|w| self.packed.contains_key(w));
        if let [Some(weight), up @ Some(_)] = weights.map(|w| self.panels.get(w))
            && !packed
        {
            let job = fast::Product { weight, up, out, round: self.round };
            return fast::products(self.kernels, x, [job]);
        }
        let mut products = [vec![0.0; out.len()], vec![0.0; out.len()]];
        for (weight, product) in weights.into_iter().zip(&mut products) {
            let round = self.round && !mutant!("fused_products_unrounded");
            self.product(weight, x, context, product, round);
        }
        let [gate, up] = &products;
        silu_mul(self.isa, gate, up, self.rows(weights[0]), self.round, out);
    }

    /// Rows of a matrix.
    fn rows(&self, weight: &WeightRef) -> usize {
        match (self.panels.get(weight), self.packed.get(weight)) {
            (Some(panels), _) => panels.rows,
            (None, Some(packed)) => packed.rows(),
            (None, None) => self.matrices[weight].rows,
        }
    }
}

/// What executes a product.
enum Kernel<'a> {
    Panels(&'a fast::Panels),
    Packed(&'a int4::Panel),
    Other,
}

impl<'a> Kernel<'a> {
    fn panels(&self) -> Option<&'a fast::Panels> {
        match self {
            Kernel::Panels(panels) => Some(panels),
            _ => None,
        }
    }

    fn packed(&self) -> Option<&'a int4::Panel> {
        match self {
            Kernel::Packed(panel) => Some(panel),
            _ => None,
        }
    }
}

/// How many of the first operations are products of the same rows, each into a buffer of its own; 1 if
/// the first is no product.
fn together(ops: &[Op]) -> usize {
    let mut input = None;
    let mut outs = Vec::new();
    for op in ops {
        let OpKind::Gemm { x, out, .. } = op.kind else { break };
        if *input.get_or_insert(x) != x || out == x || outs.contains(&out) {
            break;
        }
        outs.push(out);
    }
    outs.len().max(1)
}

#[cfg(test)]
mod tests {
    use super::together;
    use crate::backend::{Buf, Op, OpKind, WeightRef};
    use crate::descriptor::RoleName;

    #[test]
    fn products_of_the_same_rows_share_a_job() {
        let op = |x: usize, out: usize| Op {
            kind: OpKind::Gemm {
                x: Buf(x),
                weight: WeightRef { role: RoleName::AttnQ, layer: Some(0) },
                out: Buf(out),
            },
            layer: None,
            taps: Vec::new(),
        };
        let add = Op {
            kind: OpKind::ResidualAdd { residual: Buf(0), x: Buf(1) },
            layer: None,
            taps: Vec::new(),
        };
        assert_eq!(together(&[op(0, 1), op(0, 2), op(0, 3), add.clone()]), 3);
        assert_eq!(together(&[op(0, 1), op(4, 2)]), 1, "other rows");
        assert_eq!(together(&[op(0, 1), op(0, 1)]), 1, "the same buffer");
        assert_eq!(together(&[op(0, 1), op(0, 0)]), 1, "in place");
        assert_eq!(together(&[op(0, 1), add.clone(), op(0, 2)]), 1, "not neighbours");
        assert_eq!(together(&[add]), 1);
    }
}
