//! What is checked of the values that packed weights stand for.

use super::bench::{Words, open, pack, start, words};
use super::checks::{ONE_FILE, Subject};
use crate::backend::Policy;
use crate::generation::{Agreement, Windows, evaluate};
use crate::harness::kind::Outcome;
use crate::harness::kinds::loaded::prompt;
use crate::harness::spec::Tolerance;
use crate::tensor::{Difference, Int4, Int4Plan, Shared, Storage, Weight};
use crate::weights::{Model, WeightSet};
use serde::Deserialize;
use std::ops::ControlFlow;

/// How far packing may move what a model predicts: teacher-forced on pseudo-random ids, every row
/// against the row of the weights before.
#[derive(Clone, Debug, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Quality {
    /// Ids that are drawn.
    tokens: usize,
    /// Ids of a window; every window is a sequence of its own.
    window_tokens: usize,
    seed: u64,
    /// Largest root of the mean squared difference of logits.
    logit_rms: f64,
    /// Largest difference of a logit.
    logit_max_abs: f64,
    /// Smallest share of rows with the largest logit at the same id.
    top1_agreement: f64,
    /// Largest difference of the mean negative log-likelihood, in nats, in either direction.
    nll_delta_nats: f64,
}

impl Quality {
    /// What is wrong with it, if anything.
    pub(super) fn problem(&self) -> Option<&'static str> {
        let limits = [self.logit_rms, self.logit_max_abs, self.top1_agreement, self.nll_delta_nats];
        match limits.iter().all(|limit| limit.is_finite() && *limit >= 0.0) {
            true => None,
            false => Some("budgets are finite and not negative"),
        }
    }

    /// Budgets that do not hold; what is not finite never does.
    pub(super) fn exceeded(&self, found: &Agreement) -> Vec<String> {
        let at_most = [
            ("logit_rms", found.logit_rms, self.logit_rms),
            ("logit_max_abs", found.logit_max_abs, self.logit_max_abs),
            ("nll_delta_nats", found.nll_delta.abs(), self.nll_delta_nats),
        ];
        let mut all: Vec<String> = at_most
            .into_iter()
            .filter(|(_, found, limit)| found.is_nan() || found > limit)
            .map(|(name, found, limit)| format!("{name} is {found:.4}, at most {limit}"))
            .collect();
        let (top1, least) = (found.top1_agreement, self.top1_agreement);
        if top1.is_nan() || top1 < least {
            all.push(format!("top1_agreement is {top1:.4}, at least {least}"));
        }
        all
    }
}

/// Packing the values of the folder gives its codes and scales.
pub(super) fn fixed_point(s: Subject<'_>) -> Words<Outcome> {
    let out = s.scratch.join("packed");
    pack(s.model, &out, s.recipe, ONE_FILE, None)?;
    let (_, weights) = open(&out)?;
    let mut compared = 0u64;
    for (role, layer, weight) in weights.iter() {
        let Storage::Int4(stored) = &weight.storage else { continue };
        let values = Weight { storage: Storage::F32(Shared::owned(weight.to_f32())), ..*weight };
        let plan = Int4Plan { group: Some(stored.shape.group()), keep: false };
        let again = Int4::of(&values, plan).map_err(words)?;
        if (&again.codes[..], &again.scales[..]) != (&stored.codes[..], &stored.scales[..]) {
            let found = format!("{role} {layer:?}: its values have other codes or scales");
            return Ok(Outcome::fail(found));
        }
        compared += 1;
    }
    match compared {
        0 => Ok(Outcome::fail("nothing is packed")),
        n => Ok(Outcome::pass(format!("{n} weights packed again")).with("compared", n)),
    }
}

/// Logits are those of a model of the values: by bits where the policy unpacks them, within `fast`
/// where it does not.
pub(super) fn of_dequantised(s: Subject<'_>, fast: Option<&Tolerance>) -> Words<Outcome> {
    let out = s.scratch.join("packed");
    pack(s.model, &out, s.recipe, ONE_FILE, None)?;
    let packed = start(open(&out)?, s.policy, s.threads)?.logits(4)?;
    // The integers of `fast` stand for the values themselves, which FP32 holds exactly.
    let (policy, round) = match s.policy {
        Policy::Fast => (Policy::F32, false),
        policy => (policy, policy.rounds_to_bf16()),
    };
    let unpacked = |(model, weights): (Model, WeightSet)| (model, weights.dequantised(round));
    let values = start(unpacked(open(&out)?), policy, s.threads)?.logits(4)?;
    if s.policy != Policy::Fast {
        return Ok(match packed == values {
            true => Outcome::pass("the bits of the dequantised weights"),
            false => Outcome::fail("other bits than the dequantised weights have"),
        });
    }
    let fast = fast.ok_or("`of_dequantised` under `fast` needs the key `fast`")?;
    let flat = |logits: &super::bench::Logits| {
        let rows = std::iter::once(&logits.prefill).chain(&logits.decode);
        rows.flatten().copied().collect::<Vec<f32>>()
    };
    let d = Difference::between(&flat(&values), &flat(&packed)).map_err(words)?;
    let outcome = match fast.violations(&d).as_slice() {
        [] => Outcome::pass(format!("max_abs {:.2e}, mean_abs {:.2e}", d.max_abs, d.mean_abs)),
        violations => Outcome::fail(violations.join("; ")),
    };
    Ok(outcome.number("max_abs", d.max_abs).number("mean_abs", d.mean_abs))
}

/// What packing costs in prediction, within the budgets.
pub(super) fn quality(s: Subject<'_>, quality: Option<&Quality>) -> Words<Outcome> {
    let budgets = quality.ok_or("`quality` needs the key `quality`")?;
    let out = s.scratch.join("packed");
    pack(s.model, &out, s.recipe, ONE_FILE, None)?;
    let before = start(open(s.model)?, s.policy, s.threads)?.engine;
    let packed = start(open(&out)?, s.policy, s.threads)?.engine;
    let ids = prompt(budgets.seed, budgets.tokens, before.descriptor().vocab);
    let windows = Windows::new(Vec::new(), ids, budgets.window_tokens).map_err(words)?;
    let found = evaluate(&packed, &windows, Some(&before), &mut |_, _| ControlFlow::Continue(()))
        .map_err(words)?;
    let a = found.agreement.ok_or("nothing was compared")?;
    let outcome = match budgets.exceeded(&a).as_slice() {
        [] => Outcome::pass(format!("{} rows within the budgets", found.scored_tokens)),
        exceeded => Outcome::fail(exceeded.join("; ")),
    };
    Ok(outcome
        .number("logit_rms", a.logit_rms)
        .number("logit_max_abs", a.logit_max_abs)
        .number("top1_agreement", a.top1_agreement)
        .number("nll_delta_nats", a.nll_delta))
}
