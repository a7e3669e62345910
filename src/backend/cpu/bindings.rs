//! Which implementation executes each region, as the manifest records it.

use crate::backend::{Binding, Plan, Policy};

/// Bindings of the regions that a plan reaches, in region order.
///
/// `f32` and `reference` are written in portable code with a fixed order, so their bits depend on no
/// instruction set.
pub(super) fn bindings(plan: &Plan, policy: Policy) -> Vec<Binding> {
    let contract = if policy.rounds_to_bf16() { "lanes16_bf16" } else { "lanes16_f32" };
    plan.regions()
        .into_iter()
        .map(|region| Binding {
            region,
            implementation: format!("cpu/{}_{contract}", region.name()),
            instructions: "any".to_owned(),
        })
        .collect()
}
