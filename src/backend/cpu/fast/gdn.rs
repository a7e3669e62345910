//! `gdn_core` and `gdn_commit` of policy `fast`.
//!
//! # Numerics
//! The equations, groups and precisions of `reference` ([`super::super::gdn_core`]), with one difference:
//! a sum of weighted rows (S0ᵀk, S0ᵀq, Σ_l w·u, Σ_l k u) is one chain in ascending order with the links of
//! the instruction set. Dot products of k and q rows are the 16-lane sums of `reference`. Rows of a tile
//! share loads, never sums, so a row has the same bits alone and in a group.

#![expect(clippy::needless_range_loop, reason = "the registers of a tile are indexed together")]

use super::simd::{LANES, Simd, dispatch};
use crate::backend::cpu::GROUP_TOKENS;
use crate::backend::cpu::gdn_core::Inputs;
use crate::backend::cpu::lanes::dot;
use crate::backend::cpu::math::exp;
use crate::descriptor::GatedDeltaNet;
use crate::units::mutant;

/// Rows of a tile of products with the boundary state.
const TILE: usize = 4;

/// Rows of one value head: `count` rows of the chunk from `done` on, at rows `first ..` of the group.
#[derive(Clone, Copy)]
pub(in crate::backend::cpu) struct Part<'a> {
    pub(in crate::backend::cpu) inputs: Inputs<'a>,
    pub(in crate::backend::cpu) dims: GatedDeltaNet,
    pub(in crate::backend::cpu) head: usize,
    pub(in crate::backend::cpu) done: usize,
    pub(in crate::backend::cpu) first: usize,
    pub(in crate::backend::cpu) count: usize,
}

impl Part<'_> {
    fn q(&self, row: usize) -> &[f32] {
        let d = self.dims;
        let key_head = self.head / (d.value_heads / d.key_heads);
        &self.inputs.q[((self.done + row) * d.key_heads + key_head) * d.key_dim..][..d.key_dim]
    }

    /// Index of the row's scalars; times `value_dim`, of its value row.
    fn scalar(&self, row: usize) -> usize {
        (self.done + row) * self.dims.value_heads + self.head
    }
}

dispatch! {
    /// Appends u and G of the rows to `u` and `decay`, writes o (`count × value_dim`).
    pub(in crate::backend::cpu) fn gdn_rows = rows_body(part: Part<'_>, s0: &[f32], k: &[f32], u: &mut [f32], decay: &mut [f64], o: &mut [f32]);
    /// The state after a whole group.
    pub(in crate::backend::cpu) fn gdn_commit = commit_body(s0: &[f32], k: &[f32], u: &[f32], decay: &[f64], value_dim: usize, next: &mut [f32]);
}

#[inline(always)]
fn rows_body<S: Simd>(
    part: Part<'_>,
    s0: &[f32],
    k: &[f32],
    u: &mut [f32],
    decay: &mut [f64],
    o: &mut [f32],
) {
    let (key_dim, value_dim) = (part.dims.key_dim, part.dims.value_dim);
    let scale = if mutant!("gdn_query_scale") { 1.0 } else { 1.0 / (key_dim as f32).sqrt() };
    let mut q = vec![0.0; part.count * key_dim];
    for (row, q) in q.chunks_exact_mut(key_dim).enumerate() {
        q.iter_mut().zip(part.q(row)).for_each(|(q, x)| *q = x * scale);
    }
    let mut state_k = vec![0.0; part.count * value_dim];
    products::<S::Fma>(
        &k[part.first * key_dim..][..part.count * key_dim],
        s0,
        &mut state_k,
        value_dim,
    );
    o.fill(0.0);
    products::<S::Fma>(&q, s0, o, value_dim);
    let mut inner = vec![0.0; value_dim];
    for (row, o) in o.chunks_exact_mut(value_dim).enumerate() {
        let (i, scalar) = (part.first + row, part.scalar(row));
        let before = if i == 0 { 0.0 } else { decay[i - 1] };
        decay[i] = before + f64::from(part.inputs.log_decay[scalar]);
        let from_start = exp(decay[i] as f32);
        let mut since = [0.0f32; GROUP_TOKENS];
        for (l, s) in since[..=i].iter_mut().enumerate() {
            *s = exp((decay[i] - decay[l]) as f32);
        }
        let k_i = &k[i * key_dim..][..key_dim];
        let mut weights = [0.0f32; GROUP_TOKENS];
        for l in 0..i {
            weights[l] = since[l] * dot(k_i, &k[l * key_dim..][..key_dim]);
        }
        inner.fill(0.0);
        add_rows::<S::Fma, 1, 4>(&weights[..i], u, &mut inner, value_dim);
        let v = &part.inputs.v[scalar * value_dim..][..value_dim];
        let state_k = &state_k[row * value_dim..][..value_dim];
        let beta = part.inputs.beta[scalar];
        let u_i = &mut u[i * value_dim..][..value_dim];
        for (((u, inner), s), v) in u_i.iter_mut().zip(&inner).zip(state_k).zip(v) {
            *u = beta * ((v - from_start * s) - *inner);
        }
        let q = &q[row * key_dim..][..key_dim];
        for l in 0..=i {
            weights[l] = since[l] * dot(q, &k[l * key_dim..][..key_dim]);
        }
        inner.fill(0.0);
        add_rows::<S::Fma, 1, 4>(&weights[..=i], u, &mut inner, value_dim);
        for (o, x) in o.iter_mut().zip(&inner) {
            *o = from_start * *o + *x;
        }
    }
}

#[inline(always)]
fn commit_body<S: Simd>(
    s0: &[f32],
    k: &[f32],
    u: &[f32],
    decay: &[f64],
    value_dim: usize,
    next: &mut [f32],
) {
    let key_dim = s0.len() / value_dim;
    let rows = decay.len() - usize::from(mutant!("commit_drops_a_row") && !decay.is_empty());
    let total = decay.last().copied().unwrap_or(0.0);
    let from_start = exp(total as f32);
    let mut weights = vec![0.0f32; key_dim * rows];
    for (l, g) in decay[..rows].iter().enumerate() {
        let since = exp((total - g) as f32);
        for (d, k) in k[l * key_dim..][..key_dim].iter().enumerate() {
            weights[d * rows + l] = since * k;
        }
    }
    next.iter_mut().zip(s0).for_each(|(n, s)| *n = from_start * s);
    products::<S::Fma>(&weights, u, next, value_dim);
}

/// out ← out + A·B for row-major A (`rows × n`), B (`n × width` or more rows) and out (`rows × width`).
#[inline(always)]
fn products<S: Simd>(a: &[f32], b: &[f32], out: &mut [f32], width: usize) {
    let rows = out.len() / width;
    if rows == 0 || a.is_empty() {
        return;
    }
    let n = a.len() / rows;
    let mut row = 0;
    while row < rows {
        if row + TILE <= rows {
            let (a, out) = (&a[row * n..][..TILE * n], &mut out[row * width..][..TILE * width]);
            add_rows::<S, TILE, 1>(a, b, out, width);
            row += TILE;
        } else {
            let (a, out) = (&a[row * n..][..n], &mut out[row * width..][..width]);
            add_rows::<S, 1, 4>(a, b, out, width);
            row += 1;
        }
    }
}

/// [`products`] of `T` rows, `P` panels of columns at a time.
#[inline(always)]
fn add_rows<S: Simd, const T: usize, const P: usize>(
    a: &[f32],
    b: &[f32],
    out: &mut [f32],
    width: usize,
) {
    let n = a.len() / T;
    let b = &b[..n * width];
    let mut column = 0;
    while column + P * LANES <= width {
        // SAFETY: columns up to `column + P·LANES` lie within a row.
        unsafe { columns::<S, T, P>(a, b.as_ptr().add(column), n, out, width, column) };
        column += P * LANES;
    }
    while column + LANES <= width {
        // SAFETY: as above with one panel.
        unsafe { columns::<S, T, 1>(a, b.as_ptr().add(column), n, out, width, column) };
        column += LANES;
    }
    if column < width {
        ragged::<S, T>(a, b, n, out, width, column);
    }
}

/// # Safety
/// This machine must have the instruction set; `b` must point to the first of `n` rows of `P·LANES`
/// readable columns, `width` apart.
#[inline(always)]
unsafe fn columns<S: Simd, const T: usize, const P: usize>(
    a: &[f32],
    b: *const f32,
    n: usize,
    out: &mut [f32],
    width: usize,
    column: usize,
) {
    // SAFETY: the caller's promise; `out` is indexed with its bounds.
    unsafe {
        let mut acc = [[S::zero(); P]; T];
        for t in 0..T {
            let out = &out[t * width + column..][..P * LANES];
            for p in 0..P {
                acc[t][p] = S::load(out.as_ptr().add(p * LANES));
            }
        }
        let a: [*const f32; T] = std::array::from_fn(|t| a[t * n..].as_ptr());
        for j in 0..n {
            let at = b.add(j * width);
            let mut w = [S::wide(at); P];
            for p in 1..P {
                w[p] = S::wide(at.add(p * LANES));
            }
            for t in 0..T {
                for p in 0..P {
                    acc[t][p] = S::multiply(acc[t][p], w[p], a[t].add(j).cast());
                }
            }
        }
        for t in 0..T {
            let out = &mut out[t * width + column..][..P * LANES];
            for p in 0..P {
                S::store(out.as_mut_ptr().add(p * LANES), acc[t][p]);
            }
        }
    }
}

/// The last columns of a width that is no multiple of 16, through a padded copy.
#[inline(always)]
fn ragged<S: Simd, const T: usize>(
    a: &[f32],
    b: &[f32],
    n: usize,
    out: &mut [f32],
    width: usize,
    column: usize,
) {
    let rest = width - column;
    let mut padded = vec![0.0; n * LANES];
    for (to, from) in padded.chunks_exact_mut(LANES).zip(b.chunks_exact(width)) {
        to[..rest].copy_from_slice(&from[column..]);
    }
    let mut sums = vec![0.0; T * LANES];
    for (to, from) in sums.chunks_exact_mut(LANES).zip(out.chunks_exact(width)) {
        to[..rest].copy_from_slice(&from[column..]);
    }
    // SAFETY: `S` is of the set that was dispatched to; both copies are LANES wide.
    unsafe { columns::<S, T, 1>(a, padded.as_ptr(), n, &mut sums, LANES, 0) };
    for (from, to) in sums.chunks_exact(LANES).zip(out.chunks_exact_mut(width)) {
        to[column..].copy_from_slice(&from[..rest]);
    }
}
