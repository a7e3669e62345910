//! Which implementation executes each region, as the manifest records it.

use super::SAMPLER;
use crate::backend::{Binding, Plan, Policy, Region};

/// Bindings of every region that the policy binds, in region order: what the manifest records, and
/// the same for every model.
///
/// `f32` and `reference` are written in portable code with a fixed order, so their bits depend on no
/// instruction set.
pub fn policy_bindings(policy: Policy) -> Vec<Binding> {
    let contract = if policy.rounds_to_bf16() { "lanes16_bf16" } else { "lanes16_f32" };
    let implementation = |region: Region| match region {
        Region::LogSoftmax => format!("cpu/{region}_fp64_block256"),
        Region::Sampler => format!("cpu/{SAMPLER}"),
        _ => format!("cpu/{region}_{contract}"),
    };
    let binding = |region: &Region| Binding {
        region: *region,
        implementation: implementation(*region),
        instructions: "any".to_owned(),
    };
    Region::ALL.iter().map(binding).collect()
}

/// Bindings of the regions that a plan reaches.
pub(super) fn bindings(plan: &Plan, policy: Policy) -> Vec<Binding> {
    let reached = plan.regions();
    policy_bindings(policy).into_iter().filter(|b| reached.contains(&b.region)).collect()
}
