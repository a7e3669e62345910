//! Which implementation executes each region, as the manifest records it.

use super::{Isa, Kernels, SAMPLER};
use crate::backend::{Binding, Plan, Policy, Region};

/// Bindings of every region that the policy binds, in region order: what the manifest records, and
/// the same for every model.
///
/// `f32` and `reference` are written in portable code with a fixed order, so their bits depend on no
/// instruction set. `fast` binds the regions below to kernels of its own and shares the others with
/// `reference`.
pub fn policy_bindings(policy: Policy, isa: Isa) -> Vec<Binding> {
    let contract = if policy.rounds_to_bf16() { "lanes16_bf16" } else { "lanes16_f32" };
    let binding = |region: &Region| {
        let own = (policy == Policy::Fast).then(|| fast_contract(*region)).flatten();
        let implementation = match region {
            Region::LogSoftmax => format!("cpu/{region}_fp64_block256"),
            Region::Sampler => format!("cpu/{SAMPLER}"),
            Region::MoeRouterLogits => format!("cpu/{region}_lanes16_f32"),
            _ => format!("cpu/{region}_{}", own.unwrap_or(contract)),
        };
        let instructions = own.map_or("any", |_| Kernels::of(isa).instructions()).to_owned();
        Binding { region: *region, implementation, instructions }
    };
    Region::ALL.iter().map(binding).collect()
}

/// The contract of a region that `fast` computes in an order of its own.
fn fast_contract(region: Region) -> Option<&'static str> {
    match region {
        Region::Gemm | Region::GemmF32 | Region::GateUp | Region::MoeExperts => Some("chain_bf16"),
        Region::AttentionCore => Some("block256_chain_bf16"),
        Region::GdnCore | Region::GdnCommit => Some("group64_chain_bf16"),
        _ => None,
    }
}

/// Bindings of the regions that a plan reaches.
pub(super) fn bindings(plan: &Plan, policy: Policy, isa: Isa) -> Vec<Binding> {
    let reached = plan.regions();
    policy_bindings(policy, isa).into_iter().filter(|b| reached.contains(&b.region)).collect()
}
