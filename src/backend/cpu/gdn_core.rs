//! Regions `gdn_core` and `gdn_commit`: the gated delta rule by groups of 64 tokens.
//!
//! # Numerics
//! Row i of the open group, with S0 the state before the group, all FP32 unless said otherwise:
//!
//! u_i = β_i · ((v_i − e^{G_i}·(S0ᵀk_i)) − Σ_{l<i} w_il·u_l),  w_il = e^{G_i−G_l}·(k_i·k_l)
//! o_i = e^{G_i}·(S0ᵀq_i) + Σ_{l≤i} e^{G_i−G_l}·(q_i·k_l)·u_l,  q_i scaled by dk^{−1/2} first
//!
//! G is the serial FP64 sum of g over the group; differences are taken in FP64, rounded to FP32, then
//! exponentiated. Dot products are 16 lanes; S0ᵀk sums key dimensions ascending, Σ_l ascending. o is
//! rounded once. When row 63 has landed, the next boundary state is
//! S_64 = e^{G_63}·S0 + Σ_l (e^{G_63−G_l}·k_l) u_lᵀ, l ascending. Prefill, decode and every chunking
//! execute these same sums, so they agree bit for bit.
//!
//! The mathematical reference is the recurrence S ← e^g S; S ← S + k ⊗ β(v − Sᵀk); o = Sᵀq
//! (Yang, Kautz, Hatamizadeh: Gated Delta Networks, 2024); tests compare with it in FP64.

use super::fast::{Kernels, Part, gdn_commit, gdn_rows};
use super::gdn_state::{GROUP_TOKENS, GdnState};
use super::isa::multiversion;
use super::lanes::dot;
use super::math::exp;
use super::rows::{Scatter, for_each_part, items_per_task};
use super::weighted_rows::add_weighted_rows;
use crate::backend::cpu::Isa;
use crate::descriptor::GatedDeltaNet;
use crate::tensor::round_bf16;
use crate::units::mutant;
use std::sync::Arc;

/// Inputs of a chunk, each `rows × width`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Inputs<'a> {
    pub(super) q: &'a [f32],
    pub(super) k: &'a [f32],
    pub(super) v: &'a [f32],
    pub(super) log_decay: &'a [f32],
    pub(super) beta: &'a [f32],
}

/// Executes a chunk whose first row is at `position`, appending to and committing the state.
pub(super) fn gdn_core(
    isa: Isa,
    fast: Option<Kernels>,
    inputs: Inputs<'_>,
    position: usize,
    state: &mut GdnState,
    round: bool,
    out: &mut [f32],
) {
    let d = state.spec.dims;
    let rows = inputs.beta.len() / d.value_heads;
    let scatter = Scatter::new(out, d.value_heads * d.value_dim);
    let mut done = 0;
    while done < rows {
        let group = (position + done) / GROUP_TOKENS;
        let first = (position + done) % GROUP_TOKENS;
        let count = (rows - done).min(GROUP_TOKENS - first);
        part_of_group(isa, fast, inputs, done, (group, first, count), state, round, &scatter);
        done += count;
    }
}

/// Rows `first .. first + count` of one group; `done` rows of the chunk came before.
#[expect(clippy::too_many_arguments, reason = "a kernel names every operand")]
fn part_of_group(
    isa: Isa,
    fast: Option<Kernels>,
    inputs: Inputs<'_>,
    done: usize,
    (group, first, count): (usize, usize, usize),
    state: &mut GdnState,
    round: bool,
    out: &Scatter<'_>,
) {
    let d = state.spec.dims;
    let last = first + count;
    let commits = last == GROUP_TOKENS;
    let [even, odd] = &mut state.groups;
    let (open, next) = match group.is_multiple_of(2) || mutant!("gdn_stale_group") {
        true => (even, odd),
        false => (odd, even),
    };
    let k = Arc::make_mut(&mut open.k);
    for row in 0..count {
        for head in 0..d.key_heads {
            let source = ((done + row) * d.key_heads + head) * d.key_dim;
            let target = (head * GROUP_TOKENS + first + row) * d.key_dim;
            k[target..target + d.key_dim].copy_from_slice(&inputs.k[source..source + d.key_dim]);
        }
    }
    let state_len = d.key_dim * d.value_dim;
    // The next boundary is written only by a commit; otherwise it must stay shared and untouched.
    let mut no_next = Vec::new();
    let next = if commits { Arc::make_mut(&mut next.boundary) } else { &mut no_next };
    let next: Vec<&mut [f32]> = if commits {
        next.chunks_exact_mut(state_len).collect()
    } else {
        (0..d.value_heads).map(|_| &mut [][..]).collect()
    };
    let k = &*k;
    let boundary = &*open.boundary;
    let parts: Vec<_> = Arc::make_mut(&mut open.u)
        .chunks_exact_mut(GROUP_TOKENS * d.value_dim)
        .zip(Arc::make_mut(&mut open.log_decay).chunks_exact_mut(GROUP_TOKENS))
        .zip(next)
        .collect();
    let least = items_per_task(2 * count * (state_len + GROUP_TOKENS * d.value_dim));
    for_each_part(parts, least, |head, ((u, decay), next)| {
        let key_head = head / (d.value_heads / d.key_heads);
        let k = &k[key_head * GROUP_TOKENS * d.key_dim..][..GROUP_TOKENS * d.key_dim];
        let s0 = &boundary[head * state_len..][..state_len];
        let mut o = vec![0.0; d.value_dim];
        if let Some(kernels) = fast {
            let part = Part { inputs, dims: d, head, done, first, count };
            let mut o = vec![0.0; count * d.value_dim];
            gdn_rows(kernels, part, s0, k, u, decay, &mut o);
            for (row, o) in o.chunks_exact_mut(d.value_dim).enumerate() {
                if round {
                    o.iter_mut().for_each(|o| *o = round_bf16(*o));
                }
                // SAFETY: each head owns its columns of `out`.
                unsafe { out.write(done + row, head * d.value_dim, o) };
            }
            if commits {
                gdn_commit(kernels, s0, k, u, decay, d.value_dim, next);
            }
            return;
        }
        for row in 0..count {
            let i = done + row;
            let scalar = i * d.value_heads + head;
            let operands = Row {
                q: &inputs.q[(i * d.key_heads + key_head) * d.key_dim..][..d.key_dim],
                v: &inputs.v[scalar * d.value_dim..][..d.value_dim],
                log_decay: inputs.log_decay[scalar],
                beta: inputs.beta[scalar],
            };
            one_row(isa, operands, first + row, s0, k, u, decay, &mut o);
            if round {
                o.iter_mut().for_each(|o| *o = round_bf16(*o));
            }
            // SAFETY: each head owns its columns of `out`.
            unsafe { out.write(i, head * d.value_dim, &o) };
        }
        if commits {
            commit(isa, s0, k, u, decay, d.value_dim, next);
        }
    });
    if commits {
        state.opened(group + 1);
    }
}

/// Operands of one row of one value head.
#[derive(Clone, Copy)]
struct Row<'a> {
    q: &'a [f32],
    v: &'a [f32],
    log_decay: f32,
    beta: f32,
}

multiversion! {
    /// Row `i` of the open group: appends u_i and G_i, writes o_i.
    fn one_row = one_row_body(row: Row<'_>, i: usize, s0: &[f32], k: &[f32], u: &mut [f32], decay: &mut [f64], o: &mut [f32]);
    /// Region `gdn_commit`: the state after the first `decay.len()` rows of the group.
    fn commit = commit_body(s0: &[f32], k: &[f32], u: &[f32], decay: &[f64], value_dim: usize, next: &mut [f32]);
}

#[inline(always)]
fn one_row_body(
    row: Row<'_>,
    i: usize,
    s0: &[f32],
    k: &[f32],
    u: &mut [f32],
    decay: &mut [f64],
    o: &mut [f32],
) {
    let key_dim = row.q.len();
    let value_dim = row.v.len();
    let before = if i == 0 { 0.0 } else { decay[i - 1] };
    decay[i] = before + f64::from(row.log_decay);
    let counted = if mutant!("gdn_decay_misses_own_row") { before } else { decay[i] };
    let from_start = exp(counted as f32);
    let mut since = [0.0f32; GROUP_TOKENS];
    for (l, s) in since[..=i].iter_mut().enumerate() {
        *s = exp((decay[i] - decay[l]) as f32);
    }
    let k_i = &k[i * key_dim..][..key_dim];

    let mut weights = [0.0f32; GROUP_TOKENS];
    for l in 0..i {
        weights[l] = since[l] * dot(k_i, &k[l * key_dim..][..key_dim]);
    }
    let (past, rest) = u.split_at_mut(i * value_dim);
    let u_i = &mut rest[..value_dim];
    // o serves as scratch for S0ᵀk, u_i for the sum over earlier rows.
    o.fill(0.0);
    add_weighted_rows(k_i, s0, o);
    u_i.fill(0.0);
    add_weighted_rows(&weights[..i], past, u_i);
    for ((u, s), v) in u_i.iter_mut().zip(&*o).zip(row.v) {
        *u = row.beta * ((v - from_start * s) - *u);
    }

    let scale = if mutant!("gdn_query_scale") { 1.0 } else { 1.0 / (key_dim as f32).sqrt() };
    let mut q = [0.0f32; MAX_KEY_DIM];
    let q = &mut q[..key_dim];
    q.iter_mut().zip(row.q).for_each(|(q, x)| *q = x * scale);
    for l in 0..=i {
        weights[l] = since[l] * dot(q, &k[l * key_dim..][..key_dim]);
    }
    o.fill(0.0);
    add_weighted_rows(q, s0, o);
    let mut inner = [0.0f32; MAX_VALUE_DIM];
    let inner = &mut inner[..value_dim];
    add_weighted_rows(&weights[..=i], &u[..(i + 1) * value_dim], inner);
    for (o, x) in o.iter_mut().zip(inner) {
        *o = from_start * *o + *x;
    }
}

/// Largest head dimensions (refused above when a plan is checked).
pub const MAX_KEY_DIM: usize = 512;
/// See [`MAX_KEY_DIM`].
pub const MAX_VALUE_DIM: usize = 512;

#[inline(always)]
fn commit_body(
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
    let from_start = if mutant!("commit_undecayed") { 1.0 } else { exp(total as f32) };
    let mut since = [0.0f32; GROUP_TOKENS];
    for (s, g) in since.iter_mut().zip(decay) {
        *s = exp((total - g) as f32);
    }
    let mut weights = [0.0f32; GROUP_TOKENS];
    for d in 0..key_dim {
        for l in 0..rows {
            weights[l] = since[l] * k[l * key_dim + d];
        }
        let next = &mut next[d * value_dim..][..value_dim];
        for (n, s) in next.iter_mut().zip(&s0[d * value_dim..][..value_dim]) {
            *n = from_start * s;
        }
        add_weighted_rows(&weights[..rows], u, next);
    }
}

/// The recurrent state from a boundary state and the first `rows` rows of its group, laid out as in
/// [`super::gdn_state::Group`].
pub(crate) fn materialise_group(
    d: GatedDeltaNet,
    boundary: &[f32],
    k: &[f32],
    u: &[f32],
    decay: &[f64],
    rows: usize,
) -> Vec<f32> {
    let state_len = d.key_dim * d.value_dim;
    let mut out = vec![0.0; d.value_heads * state_len];
    for (head, out) in out.chunks_exact_mut(state_len).enumerate() {
        let key_head = head / (d.value_heads / d.key_heads);
        commit(
            Isa::PORTABLE,
            &boundary[head * state_len..][..state_len],
            &k[key_head * GROUP_TOKENS * d.key_dim..][..GROUP_TOKENS * d.key_dim],
            &u[head * GROUP_TOKENS * d.value_dim..][..GROUP_TOKENS * d.value_dim],
            &decay[head * GROUP_TOKENS..][..rows],
            d.value_dim,
            out,
        );
    }
    out
}

/// The recurrent state after `len` tokens: the boundary state advanced by the rows so far.
pub(super) fn materialise(state: &GdnState, len: usize) -> Vec<f32> {
    let group = &state.groups[len / GROUP_TOKENS % 2];
    let rows = len % GROUP_TOKENS;
    materialise_group(state.spec.dims, &group.boundary, &group.k, &group.u, &group.log_decay, rows)
}
