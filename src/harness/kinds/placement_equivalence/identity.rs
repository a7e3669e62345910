//! Which identities a placement moves.

use super::engines::Weighted;
use crate::engine::Engine;
use crate::engine::manifest::{BlockName, Execution, NumericalPolicy};
use crate::harness::kind::Outcome;

/// A placement moves `deployment` alone, and `numerical_policy` too where a cut is no subtree.
pub(super) fn outcome(weighted: &Weighted, one: &Engine, ranks: &Engine) -> Outcome {
    let source = weighted.weights.source();
    let before = Execution::of(one, source, None, 1).manifest();
    let after = Execution::of(ranks, source, None, 1).manifest();
    // When a run was made is no identity.
    let moved: Vec<&str> = BlockName::ALL
        .into_iter()
        .filter(|block| *block != BlockName::Run && before.id(*block) != after.id(*block))
        .map(BlockName::as_str)
        .collect();
    let off = off_the_tree(ranks);
    decide(&moved, &off)
}

/// Roles whose cuts are no subtrees of what the policy adds.
pub(super) fn off_the_tree(ranks: &Engine) -> Vec<String> {
    let policy = NumericalPolicy::of(ranks.descriptor(), ranks.policy(), ranks.isa());
    let cuts = policy.placed(ranks.placement()).cuts_off_the_tree;
    cuts.iter().map(|cut| cut.role.to_string()).collect()
}

pub(super) fn decide(moved: &[&str], off_the_tree: &[String]) -> Outcome {
    let expected: &[&str] =
        if off_the_tree.is_empty() { &["deployment"] } else { &["numerical_policy", "deployment"] };
    let outcome = if moved == expected {
        Outcome::pass(format!("moves {}", moved.join(" and ")))
    } else {
        Outcome::fail(format!("expected to move {expected:?}, moved {moved:?}"))
    };
    outcome.with("cuts_off_the_tree", off_the_tree.to_vec())
}
