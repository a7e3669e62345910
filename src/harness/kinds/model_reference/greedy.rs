//! Greedy continuations against the reference.

use super::bounds::Bounds;
use super::reference::Greedy;
use crate::harness::kind::{Outcome, Verdict};

/// Decides from the engine's arg-max at every step of the reference's continuation.
///
/// The engine is fed the reference's own tokens, so a step where it chose another one does not
/// spoil those after it. In `f32` every step must agree: then the engine left alone generates the
/// same tokens. A policy that rounds to BF16 must agree at every step whose margin is at least
/// twice the family's BF16 maximum, which implies agreement up to the first step below that. Where a
/// model with experts has a smaller maximum for rows before its routes differ, so must the first
/// `untouched` steps from twice that on, and all steps before the first below it unless none is untouched.
pub(super) fn outcome(
    reference: &Greedy,
    found: &[u32],
    untouched: usize,
    bounds: Bounds,
) -> Outcome {
    let steps = reference.tokens.len();
    if found.len() != steps {
        return Outcome::fail(format!("{} steps were decoded of {steps}", found.len()));
    }
    let decided_margin = bounds.decided_margin();
    let small = bounds.before_flip().unwrap_or(decided_margin);
    let first_small = reference.margins.iter().take_while(|m| **m >= small).count();
    // Behind a prompt whose routes differ already, no step is held to the smaller maximum.
    let first_small = if untouched > 0 { first_small } else { 0 };
    let margin_of = |step: usize| match step < untouched || step < first_small {
        true => small.min(decided_margin),
        false => decided_margin,
    };
    let decided = |step: &usize| reference.margins[*step] >= margin_of(*step);
    let agrees = |step: &usize| reference.tokens[*step] == found[*step];
    let decided_steps = (0..steps).filter(decided).count();
    let agreeing = (0..steps).filter(agrees).count();
    let wrong = (0..steps).find(|step| decided(step) && !agrees(step));
    let prefix = (0..steps).take_while(agrees).count();
    let outcome = match wrong {
        Some(step) => Outcome::fail(format!(
            "step {step}: expected token {}, found {} (margin {}; tokens must agree from a margin of \
             {})",
            reference.tokens[step],
            found[step],
            reference.margins[step],
            margin_of(step)
        )),
        None if decided_steps == 0 => Outcome::new(
            Verdict::Measured,
            format!("no step has a margin of {}; {agreeing} of {steps} tokens agree", margin_of(0)),
        ),
        None if decided_steps == steps => Outcome::pass(format!("{steps} of {steps} tokens agree")),
        None => Outcome::pass(format!(
            "{decided_steps} of {decided_steps} tokens agree where the margin decides, {agreeing} of \
             {steps} in all"
        )),
    };
    outcome
        .with("steps", steps)
        .with("decided_steps", decided_steps)
        .with("agreeing_steps", agreeing)
        .with("agrees_for_first", prefix)
        .number("decided_margin", decided_margin)
        .number("decided_margin_before_flip", small.min(decided_margin))
        .with("steps_before_flip", untouched.min(steps))
}
