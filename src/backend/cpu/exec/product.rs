//! Matrix products of the executor: packed, in panels, or plain.

use super::super::elementwise::silu_mul;
use super::super::fast;
use super::super::gemm::gemm;
use super::super::int4::Rounding;
use super::{Context, Executor};
use crate::backend::WeightRef;
use crate::units::mutant;

impl Executor {
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
        if let [Some(gate), Some(up)] = weights.map(|w| self.panels.get(w))
            && !packed
        {
            return fast::gate_up(self.kernels, x, [gate, up], out, self.round);
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
        self.panels.get(weight).map_or_else(|| self.matrices[weight].rows, |panels| panels.rows)
    }
}
