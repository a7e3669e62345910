//! Regions `rms_norm` and `per_head_norm`.
//!
//! # Numerics
//! Σx² in 16 lanes ([`super::lanes`]), r = 1 / sqrt(Σx²/n + ε) with exact division and square
//! root. `plain`: round(round(x·r)·w). `one_plus`: round((x·r)·(1 + w)).

use super::elementwise::add_row;
use super::isa::multiversion;
use super::lanes::dot;
use super::rows::{for_each_part, for_each_row};
use crate::backend::cpu::Isa;
use crate::descriptor::NormStyle;
use crate::tensor::round_bf16;
use crate::units::mutant;

/// Arithmetic of one norm.
#[derive(Clone, Copy, Debug)]
pub(super) struct Norm<'a> {
    pub(super) weight: &'a [f32],
    pub(super) style: NormStyle,
    pub(super) epsilon: f32,
    pub(super) round: bool,
}

/// Normalises every row of `x` into `out`.
pub(super) fn rms_norm(isa: Isa, x: &[f32], norm: Norm<'_>, out: &mut [f32]) {
    let width = norm.weight.len();
    for_each_row(out, width, |i, row| {
        row.copy_from_slice(&x[i * width..][..width]);
        norm_row(isa, row, norm);
    });
}

/// Region `residual_norm`: residual ← round(residual + x), and the norm of that row into `out`.
pub(super) fn residual_norm(
    isa: Isa,
    residual: &mut [f32],
    x: &[f32],
    norm: Norm<'_>,
    out: &mut [f32],
) {
    let width = norm.weight.len();
    let parts: Vec<_> = residual.chunks_exact_mut(width).zip(out.chunks_exact_mut(width)).collect();
    let least = (4 << 10) / width + 1;
    for_each_part(parts, least, |i, (residual, out)| {
        let i = if mutant!("fused_residual_first_row") { 0 } else { i };
        if mutant!("fused_norm_before_sum") {
            out.copy_from_slice(residual);
        }
        add_row(isa, residual, &x[i * width..][..width], norm.round);
        if !mutant!("fused_norm_before_sum") {
            out.copy_from_slice(residual);
        }
        norm_row(isa, out, norm);
    });
}

/// Normalises every head of every row of `x`, in place; `width` is that of a row.
pub(super) fn per_head_norm(isa: Isa, x: &mut [f32], width: usize, norm: Norm<'_>) {
    let head_dim = norm.weight.len();
    let heads = width / head_dim - usize::from(mutant!("head_norm_skips_last"));
    let style = match (mutant!("head_norm_other_style"), norm.style) {
        (true, NormStyle::Plain) => NormStyle::OnePlus,
        (true, NormStyle::OnePlus) => NormStyle::Plain,
        (false, style) => style,
    };
    let norm = Norm { style, ..norm };
    for_each_row(x, width, |_, row| {
        row.chunks_exact_mut(head_dim).take(heads).for_each(|head| norm_row(isa, head, norm));
    });
}

multiversion! {
    fn norm_row = norm_row_body(row: &mut [f32], norm: Norm<'_>);
}

#[inline(always)]
fn norm_row_body(row: &mut [f32], norm: Norm<'_>) {
    let r = inverse_rms(row, norm.epsilon);
    let round = |v: f32| if norm.round { round_bf16(v) } else { v };
    match norm.style {
        NormStyle::Plain => {
            for (x, w) in row.iter_mut().zip(norm.weight) {
                let normed = *x * r;
                let normed = if mutant!("norm_lost_rounding") { normed } else { round(normed) };
                *x = round(normed * w);
            }
        }
        NormStyle::OnePlus => {
            for (x, w) in row.iter_mut().zip(norm.weight) {
                let w = if mutant!("norm_weight_without_one") { *w } else { 1.0 + w };
                *x = round((*x * r) * w);
            }
        }
    }
}

/// 1 / sqrt(mean x² + ε).
#[inline(always)]
pub(super) fn inverse_rms(x: &[f32], epsilon: f32) -> f32 {
    let epsilon = if mutant!("norm_epsilon_dropped") { 0.0 } else { epsilon };
    1.0 / (dot(x, x) / x.len() as f32 + epsilon).sqrt()
}
