//! Regions without a reduction: `embedding`, `residual_add`, `bias_add`, `silu_mul`, `q_gate_split`,
//! `attention_output_gate`, `gdn_conv_silu`. FP32 arithmetic, one rounding of the result.

use super::isa::multiversion;
use super::math::{sigmoid, silu};
use super::rows::for_each_row;
use crate::backend::cpu::Isa;
use crate::tensor::{Storage, Weight, bf16_from_bits, round_bf16};
use crate::units::mutant;

/// Copies the embedding row of every token.
pub(super) fn embedding(tokens: &[u32], weight: &Weight, round: bool, out: &mut [f32]) {
    let width = weight.cols;
    for_each_row(out, width, |i, row| {
        let i = if mutant!("embedding_token_before") { i.saturating_sub(1) } else { i };
        let next = usize::from(mutant!("embedding_next_id"));
        let start = (tokens[i] as usize + next) % weight.rows * width;
        match &weight.storage {
            Storage::Bf16(w) => {
                row.iter_mut().zip(&w[start..]).for_each(|(o, w)| *o = bf16_from_bits(*w));
            }
            Storage::F32(w) if round => {
                row.iter_mut().zip(&w[start..]).for_each(|(o, w)| *o = round_bf16(*w));
            }
            Storage::F32(w) => row.copy_from_slice(&w[start..start + width]),
            Storage::Int4(_) => unreachable!("checked: an embedding is never packed"),
        }
    });
}

/// As [`embedding`], of the rows from `first_row` on that `weight` holds; −0 for other tokens. Adding
/// −0 changes no number, not even the sign of a zero.
pub(super) fn embedding_part(
    tokens: &[u32],
    weight: &Weight,
    first_row: usize,
    round: bool,
    out: &mut [f32],
) {
    for_each_row(out, weight.cols, |i, row| {
        match (tokens[i] as usize).checked_sub(first_row).filter(|id| *id < weight.rows) {
            Some(id) => embedding(&[id as u32], weight, round, row),
            None => row.fill(-0.0),
        }
    });
}

/// Splits per-head `[q | gate]` of every row.
pub(super) fn q_gate_split(
    x: &[f32],
    heads: usize,
    head_dim: usize,
    q: &mut [f32],
    gate: &mut [f32],
) {
    let width = heads * head_dim;
    let (first, second) =
        if mutant!("gate_halves_swapped") { (head_dim, 0) } else { (0, head_dim) };
    for_each_row(q, width, |i, row| copy_halves(&x[i * 2 * width..], row, head_dim, first));
    for_each_row(gate, width, |i, row| copy_halves(&x[i * 2 * width..], row, head_dim, second));
}

fn copy_halves(x: &[f32], row: &mut [f32], head_dim: usize, offset: usize) {
    let width = row.len();
    for (head, out) in row.chunks_exact_mut(head_dim).enumerate() {
        let start = match mutant!("gate_split_by_row") {
            true => head * head_dim + offset / head_dim * width,
            false => head * 2 * head_dim + offset,
        };
        out.copy_from_slice(&x[start..][..head_dim]);
    }
}

multiversion! {
    /// residual ← round(residual + x).
    pub(super) fn add_row = add_row_body(residual: &mut [f32], x: &[f32], round: bool);
    /// x ← round(x + bias).
    fn bias_row = add_row_body(x: &mut [f32], bias: &[f32], round: bool);
    /// out ← round(silu(gate) · up).
    fn silu_mul_row = silu_mul_row_body(gate: &[f32], up: &[f32], round: bool, out: &mut [f32]);
    /// x ← round(x · sigmoid(gate)).
    fn gate_row = gate_row_body(x: &mut [f32], gate: &[f32], round: bool);
    /// x ← round(silu(x)).
    fn silu_row = silu_row_body(x: &mut [f32], round: bool);
}

#[inline(always)]
fn finish(v: f32, round: bool) -> f32 {
    if round { round_bf16(v) } else { v }
}

#[inline(always)]
fn add_row_body(residual: &mut [f32], x: &[f32], round: bool) {
    let round = round && !mutant!("residual_lost_rounding");
    residual.iter_mut().zip(x).for_each(|(r, x)| *r = finish(*r + x, round));
}

#[inline(always)]
fn silu_mul_row_body(gate: &[f32], up: &[f32], round: bool, out: &mut [f32]) {
    let (gate, up) = if mutant!("silu_mul_swapped") { (up, gate) } else { (gate, up) };
    if mutant!("silu_mul_sigmoid") {
        let terms = out.iter_mut().zip(gate).zip(up);
        return terms.for_each(|((o, g), u)| *o = finish(sigmoid(*g) * u, round));
    }
    for ((o, g), u) in out.iter_mut().zip(gate).zip(up) {
        *o = finish(silu(*g) * u, round);
    }
}

#[inline(always)]
fn gate_row_body(x: &mut [f32], gate: &[f32], round: bool) {
    if mutant!("output_gate_silu") {
        return x.iter_mut().zip(gate).for_each(|(x, g)| *x = finish(*x * silu(*g), round));
    }
    x.iter_mut().zip(gate).for_each(|(x, g)| *x = finish(*x * sigmoid(*g), round));
}

#[inline(always)]
fn silu_row_body(x: &mut [f32], round: bool) {
    let round = round && !mutant!("conv_silu_lost_rounding");
    if mutant!("conv_silu_sigmoid") {
        return x.iter_mut().for_each(|x| *x = finish(sigmoid(*x), round));
    }
    x.iter_mut().for_each(|x| *x = finish(silu(*x), round));
}

/// residual += x, every row.
pub(super) fn residual_add(isa: Isa, residual: &mut [f32], x: &[f32], width: usize, round: bool) {
    for_each_row(residual, width, |i, row| {
        let i = if mutant!("residual_first_row") { 0 } else { i };
        add_row(isa, row, &x[i * width..][..width], round);
    });
}

/// x += bias, every row.
pub(super) fn bias_add(isa: Isa, x: &mut [f32], bias: &[f32], round: bool) {
    let round = round && !mutant!("bias_lost_rounding");
    for_each_row(x, bias.len(), |row, x| {
        let missed = mutant!("bias_first_row_only") && row > 0;
        bias_row(isa, x, if missed { &bias[..0] } else { bias }, round);
    });
}

/// silu(gate) × up, every row.
pub(super) fn silu_mul(
    isa: Isa,
    gate: &[f32],
    up: &[f32],
    width: usize,
    round: bool,
    out: &mut [f32],
) {
    for_each_row(out, width, |i, row| {
        silu_mul_row(isa, &gate[i * width..][..width], &up[i * width..][..width], round, row);
    });
}

/// x × sigmoid(gate), every row.
pub(super) fn attention_output_gate(
    isa: Isa,
    x: &mut [f32],
    gate: &[f32],
    width: usize,
    round: bool,
) {
    for_each_row(x, width, |i, row| {
        let i = if mutant!("output_gate_first_row") { 0 } else { i };
        gate_row(isa, row, &gate[i * width..][..width], round);
    });
}

/// silu(x), every row.
pub(super) fn gdn_conv_silu(isa: Isa, x: &mut [f32], width: usize, round: bool) {
    for_each_row(x, width, |_, row| silu_row(isa, row, round));
}
