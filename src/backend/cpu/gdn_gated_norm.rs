//! Region `gdn_gated_norm`: per-head RMS norm, then × silu(z).
//!
//! # Numerics
//! n = round(x · r), r as in `rms_norm`; m = n · w, rounded too where w is stored in BF16;
//! out = round(m · silu(z)); FP32 in between.

use super::isa::multiversion;
use super::math::{sigmoid, silu};
use super::rms_norm::inverse_rms;
use super::rows::for_each_row;
use crate::backend::cpu::Isa;
use crate::tensor::round_bf16;
use crate::units::mutant;

/// Arithmetic of the gated norm.
#[derive(Clone, Copy, Debug)]
pub(super) struct GatedNorm<'a> {
    /// One weight per value dimension, shared by all heads.
    pub(super) weight: &'a [f32],
    /// Whether the stored weight is BF16, so that its product rounds.
    pub(super) weight_is_bf16: bool,
    pub(super) epsilon: f32,
    pub(super) round: bool,
}

/// Normalises and gates every row of `x` (`rows × width`), in place.
pub(super) fn gdn_gated_norm(
    isa: Isa,
    x: &mut [f32],
    z: &[f32],
    width: usize,
    norm: GatedNorm<'_>,
) {
    let dim = norm.weight.len();
    for_each_row(x, width, |i, row| {
        let z = &z[i * width..][..width];
        for (x, z) in row.chunks_exact_mut(dim).zip(z.chunks_exact(dim)) {
            gated_head(isa, x, z, norm);
        }
    });
}

multiversion! {
    fn gated_head = gated_head_body(x: &mut [f32], z: &[f32], norm: GatedNorm<'_>);
}

#[inline(always)]
fn gated_head_body(x: &mut [f32], z: &[f32], norm: GatedNorm<'_>) {
    if mutant!("gated_norm_gate_first") {
        x.iter_mut().zip(z).for_each(|(x, z)| *x *= silu(*z));
    }
    let r = inverse_rms(x, norm.epsilon);
    let round = |v: f32, when: bool| if when { round_bf16(v) } else { v };
    for ((x, z), w) in x.iter_mut().zip(z).zip(norm.weight) {
        let n = round(*x * r, norm.round);
        let m = round(n * w, norm.round && norm.weight_is_bf16);
        let gate = match (mutant!("gated_norm_gate_first"), mutant!("gated_norm_sigmoid")) {
            (true, _) => 1.0,
            (_, true) => sigmoid(*z),
            _ => silu(*z),
        };
        *x = round(m * gate, norm.round);
    }
}
