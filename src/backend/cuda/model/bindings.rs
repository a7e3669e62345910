//! Which implementation executes each region on CUDA, as the manifest records it.

use crate::backend::cpu::SAMPLER;
use crate::backend::{Binding, Plan, Policy, Region};

/// Bindings of every region that the policy binds, in region order.
///
/// `log_softmax` runs on the host, from the device's logits; so does a sampler that truncates, with the
/// arithmetic of the device's.
pub fn policy_bindings(policy: Policy) -> Vec<Binding> {
    let rounds = policy.rounds_to_bf16();
    let binding = |region: &Region| {
        let element = if rounds { "bf16" } else { "f32" };
        let (implementation, instructions) = match (region, rounds) {
            (Region::LogSoftmax, _) => (format!("cpu/{region}_fp64_block256"), "any"),
            (Region::Sampler, _) => (format!("cuda/{SAMPLER}"), "any"),
            (Region::Gemm | Region::GateUp, true) if policy == Policy::Fast => {
                (format!("cuda/{region}_segments_or_cublaslt_{element}"), "unpinned")
            }
            (Region::Gemm | Region::GemmF32 | Region::GateUp, true) => {
                (format!("cuda/{region}_segments_{element}"), "mma_k16_bf16")
            }
            (Region::AttentionCore, true) if policy == Policy::Fast => {
                (format!("cuda/{region}_running_{element}"), "mma_k16_bf16")
            }
            (Region::AttentionCore, true) => {
                (format!("cuda/{region}_block256_{element}"), "mma_k16_bf16")
            }
            (Region::AttentionCore, false) => {
                (format!("cuda/{region}_serial_block256_{element}"), "fma_f32")
            }
            (Region::Gemm | Region::GemmF32 | Region::GateUp, false) => {
                (format!("cuda/{region}_serial_segments_{element}"), "fma_f32")
            }
            (Region::GdnCore | Region::GdnCommit, true) if policy == Policy::Fast => {
                (format!("cuda/{region}_chunk64_or_group64_{element}"), "mma_k16_bf16")
            }
            (Region::GdnCore | Region::GdnCommit, _) => {
                (format!("cuda/{region}_group64_{element}"), "fma_f32")
            }
            _ => (format!("cuda/{region}_{element}"), "fma_f32"),
        };
        Binding { region: *region, implementation, instructions: instructions.to_owned() }
    };
    Region::ALL.iter().map(binding).collect()
}

/// Bindings of the regions that a plan reaches.
pub(super) fn bindings(plan: &Plan, policy: Policy) -> Vec<Binding> {
    let reached = plan.regions();
    policy_bindings(policy).into_iter().filter(|b| reached.contains(&b.region)).collect()
}
