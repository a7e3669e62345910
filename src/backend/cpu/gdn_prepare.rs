//! Region `gdn_prepare`: unit q and k rows, value rows, log decay g and update rate β.
//!
//! # Numerics
//! q and k per head: x · (1 / sqrt(Σx² + 1e−6)), Σ in 16 lanes, one rounding. β = sigmoid(b) in FP32,
//! not rounded. g = −exp(A_log + ln softplus(a + dt_bias)): the sum a + dt_bias in FP32, the rest in
//! FP64 with one rounding to FP32, clamped below at [`LEAST_LOG_DECAY`] (e^g is 0 long before). In
//! this form extremes stay finite: A_log = 100 with dt = −200 is e^{−100}, not ∞ · 0.

use super::isa::multiversion;
use super::lanes::dot;
use super::math::sigmoid;
use super::rows::for_each_row;
use crate::backend::cpu::Isa;
use crate::descriptor::GatedDeltaNet;
use crate::tensor::{exp64, ln64, round_bf16};
use crate::units::mutant;

/// Lower clamp of the log decay.
pub const LEAST_LOG_DECAY: f32 = -1e4;
/// Epsilon of the L2 norm of q and k.
pub const L2_EPSILON: f32 = 1e-6;

/// Outputs of the region, each `rows × width`.
#[derive(Debug)]
pub(super) struct Prepared<'a> {
    pub(super) q: &'a mut [f32],
    pub(super) k: &'a mut [f32],
    pub(super) v: &'a mut [f32],
    pub(super) log_decay: &'a mut [f32],
    pub(super) beta: &'a mut [f32],
}

/// Prepares every row. `qkv` is the activated convolution, `a` and `b` the projections.
#[expect(clippy::too_many_arguments, reason = "a kernel names every operand")]
pub(super) fn gdn_prepare(
    isa: Isa,
    dims: GatedDeltaNet,
    qkv: &[f32],
    a: &[f32],
    b: &[f32],
    a_log: &[f32],
    dt_bias: &[f32],
    round: bool,
    out: Prepared<'_>,
) {
    let keys = dims.key_heads * dims.key_dim;
    let values = dims.value_heads * dims.value_dim;
    let channels = dims.channels();
    for (part, offset) in [(out.q, 0), (out.k, keys)] {
        for_each_row(part, keys, |row, part| {
            part.copy_from_slice(&qkv[row * channels + offset..][..keys]);
            let width = if mutant!("gdn_norm_over_heads") { keys } else { dims.key_dim };
            part.chunks_exact_mut(width).for_each(|head| unit(isa, head, round));
        });
    }
    for_each_row(out.v, values, |row, part| {
        part.copy_from_slice(&qkv[row * channels + 2 * keys..][..values]);
    });
    for (i, (g, beta)) in out.log_decay.iter_mut().zip(out.beta).enumerate() {
        let head = i % dims.value_heads;
        let bias = if mutant!("gdn_decay_bias_dropped") { 0.0 } else { dt_bias[head] };
        *g = log_decay(a[i] + bias, a_log[head]);
        *beta = sigmoid(b[i]);
    }
}

/// g for the pre-activation `x` = a + dt_bias.
pub(super) fn log_decay(x: f32, a_log: f32) -> f32 {
    let g = -exp64(f64::from(a_log) + ln_softplus(f64::from(x)));
    let g = g as f32;
    if g < LEAST_LOG_DECAY { LEAST_LOG_DECAY } else { g }
}

/// ln(ln(1 + eˣ)), without overflow or cancellation.
fn ln_softplus(x: f64) -> f64 {
    let e = exp64(if x > 0.0 { -x } else { x });
    if x < -12.0 {
        // ln(ln(1 + e)) = ln e + ln(1 − e/2 + e²/3 − …); the next term is below 1e−16.
        x - e / 2.0 + 5.0 * e * e / 24.0
    } else if x > 0.0 {
        ln64(x + ln64(1.0 + e))
    } else {
        ln64(ln64(1.0 + e))
    }
}

multiversion! {
    fn unit = unit_body(head: &mut [f32], round: bool);
}

#[inline(always)]
fn unit_body(head: &mut [f32], round: bool) {
    let r = 1.0 / (dot(head, head) + L2_EPSILON).sqrt();
    for x in head {
        *x = if round { round_bf16(*x * r) } else { *x * r };
    }
}
