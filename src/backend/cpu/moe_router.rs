//! Regions `moe_router_logits` and `moe_router`: which experts a token is sent to, and with what weights.
//!
//! # Numerics
//! `moe_router_logits`: the norm of the residual stream as `rms_norm` and its product with the router's
//! weight in the order of `gemm`, under every policy, and nothing is rounded between: which of two nearly equal
//! experts is chosen is decided in FP32.
//! `moe_router`: p = softmax of the logits over all experts in FP32: e^(x − max) with our own exponential, the sum
//! in 16 lanes by expert id, one division each. With groups, experts outside the groups with the
//! largest best p count as 0. The largest p are chosen, the lowest id on ties, by falling p.
//! Weights: p, divided by their sum (added by falling p) where the model renormalises, × the model's
//! factor where it has one; rounded where the model keeps them in its own type.
//!
//! Shazeer et al., "Outrageously Large Neural Networks" (2017); groups: DeepSeek-AI, "DeepSeek-V2"
//! (2024), device-limited routing.

use super::gemm::gemm;
use super::isa::multiversion;
use super::lanes::sum;
use super::math::exp;
use super::rms_norm::{Norm, rms_norm};
use super::rows::for_each_row;
use crate::backend::cpu::Isa;
use crate::descriptor::{Precision, Router};
use crate::tensor::{Weight, round_bf16};
use crate::units::mutant;

/// Logits of every expert for every row of `x`, into `out` (`rows × experts`), by way of `normed`.
pub(super) fn moe_router_logits(
    isa: Isa,
    x: &[f32],
    norm: Norm<'_>,
    weight: &Weight,
    normed: &mut [f32],
    out: &mut [f32],
) {
    let round = norm.round && mutant!("router_norm_rounded");
    rms_norm(isa, x, Norm { round, ..norm }, normed);
    gemm(isa, normed, weight, out, norm.round && mutant!("router_logits_rounded"));
}

/// Routes every row of `logits` (`rows × experts`): ids into `index`, weights into `weights`, both
/// `rows × k`. Logits that are not finite give weights that are not.
pub(super) fn moe_router(
    isa: Isa,
    logits: &[f32],
    experts: usize,
    router: &Router,
    round: bool,
    index: &mut [f32],
    weights: &mut [f32],
) {
    let k = index.len() / (logits.len() / experts).max(1);
    let mut probabilities = logits.to_vec();
    for_each_row(&mut probabilities, experts, |_, row| {
        softmax(isa, row);
        keep_groups(row, router);
    });
    let rows = index.chunks_exact_mut(k).zip(weights.chunks_exact_mut(k));
    for ((index, weights), p) in rows.zip(probabilities.chunks_exact(experts)) {
        choose(p, index, weights);
        if router.renormalise && !mutant!("moe_weights_not_renormalised") {
            let total = weights.iter().fold(0.0, |sum, w| sum + w);
            weights.iter_mut().for_each(|w| *w /= total);
        }
        let scaling = if mutant!("moe_weights_unscaled") { 1.0 } else { router.scaling as f32 };
        if scaling != 1.0 {
            weights.iter_mut().for_each(|w| *w *= scaling);
        }
        let round = round && !mutant!("moe_weights_lost_rounding");
        if round && router.weights == Precision::Model {
            weights.iter_mut().for_each(|w| *w = round_bf16(*w));
        }
    }
}

multiversion! {
    fn softmax = softmax_body(row: &mut [f32]);
}

#[inline(always)]
fn softmax_body(row: &mut [f32]) {
    let mut max = f32::NEG_INFINITY;
    for x in row.iter() {
        max = if *x > max { *x } else { max };
    }
    row.iter_mut().for_each(|x| *x = exp(*x - max));
    let total = sum(row);
    row.iter_mut().for_each(|x| *x /= total);
}

/// Sets the probabilities of experts outside the best groups to 0.
fn keep_groups(p: &mut [f32], router: &Router) {
    if router.groups_kept == router.groups {
        return;
    }
    let size = p.len() / router.groups;
    let best: Vec<f32> = p
        .chunks_exact(size)
        .map(|group| group.iter().fold(f32::NEG_INFINITY, |a, b| if *b > a { *b } else { a }))
        .collect();
    let mut kept = vec![0.0; router.groups_kept];
    let mut unused = vec![0.0; router.groups_kept];
    choose(&best, &mut kept, &mut unused);
    for (group, p) in p.chunks_exact_mut(size).enumerate() {
        if !kept.contains(&(group as f32)) {
            p.fill(0.0);
        }
    }
}

/// The largest values and their places, falling; the lowest place on ties.
#[expect(clippy::needless_range_loop, reason = "two slices are filled in step")]
fn choose(p: &[f32], index: &mut [f32], values: &mut [f32]) {
    let ties_to_highest = mutant!("moe_tie_order");
    for i in 0..index.len() {
        let (taken, rest) = index.split_at_mut(i);
        let mut best: Option<usize> = None;
        for (id, value) in p.iter().enumerate() {
            let better =
                best.is_none_or(|b| if ties_to_highest { *value >= p[b] } else { *value > p[b] });
            if better && !taken.contains(&(id as f32)) {
                best = Some(id);
            }
        }
        // The plan is checked: there are at least as many experts as choices.
        let best = best.unwrap_or_default();
        rest[0] = best as f32;
        values[i] = p[best];
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn router(renormalise: bool, groups: usize, groups_kept: usize) -> Router {
        Router {
            logits: Precision::Model,
            weights: Precision::F32,
            renormalise,
            scaling: 1.0,
            groups,
            groups_kept,
        }
    }

    fn route(logits: &[f32], router: &Router, k: usize) -> (Vec<f32>, Vec<f32>) {
        let (mut index, mut weights) = (vec![f32::NAN; k], vec![f32::NAN; k]);
        moe_router(Isa::PORTABLE, logits, logits.len(), router, false, &mut index, &mut weights);
        (index, weights)
    }

    #[test]
    fn equal_scores_go_to_the_lowest_ids() {
        let (index, weights) = route(&[1.0; 8], &router(true, 1, 1), 3);
        assert_eq!(index, [0.0, 1.0, 2.0]);
        assert!(weights.iter().all(|w| (w - 1.0 / 3.0).abs() < 1e-7));
        let (index, _) = route(&[0.0, 2.0, 1.0, 2.0, 1.0, 2.0], &router(false, 1, 1), 4);
        assert_eq!(index, [1.0, 3.0, 5.0, 2.0]);
    }

    #[test]
    fn near_ties_keep_their_order() {
        // Probabilities of about 1/2 that differ by 1e-7: FP32 tells them apart.
        let (index, weights) = route(&[0.0, 4e-7, -30.0, 2e-7], &router(true, 1, 1), 3);
        assert_eq!(index, [1.0, 3.0, 0.0]);
        assert!(weights[0] > weights[1] && weights[1] > weights[2]);
    }

    #[test]
    fn the_best_groups_are_kept() {
        // Groups {0, 1}, {2, 3}, {4, 5}: the second best expert lies in a group that is not kept.
        let logits = [3.0, 0.0, 2.0, 1.9, 2.5, -1.0];
        let (index, _) = route(&logits, &router(false, 3, 1), 2);
        assert_eq!(index, [0.0, 1.0]);
        let (index, _) = route(&logits, &router(false, 3, 2), 3);
        assert_eq!(index, [0.0, 4.0, 1.0]);
        let (index, _) = route(&logits, &router(false, 3, 3), 3);
        assert_eq!(index, [0.0, 4.0, 2.0]);
    }

    #[test]
    fn logits_that_are_not_finite_give_such_weights() {
        let (index, weights) = route(&[0.0, f32::NAN, 1.0], &router(true, 1, 1), 2);
        assert!(index.iter().all(|i| *i < 3.0) && index[0] != index[1]);
        assert!(weights.iter().all(|w| w.is_nan()));
    }
}
