//! From a descriptor and weights to an engine.

use super::device::{self, Loaded};
use super::lower::lower;
use super::meter::Meter;
use super::sequence::Home;
use super::{Engine, EngineError, EngineOptions, check};
use crate::backend::cpu::Isa;
use crate::backend::{DeviceKind, Fusion, Plan, Policy, fuse};
use crate::descriptor::Descriptor;
use crate::placement::{Device, Placement, PlacementRequest, Stored};
use crate::weights::{Artifact, WeightSet};
use std::sync::Arc;

/// What an engine is made of besides its device.
struct Parts {
    descriptor: Arc<Descriptor>,
    plan: Plan,
    policy: Policy,
    fusions: Vec<Fusion>,
    weight_bytes: u64,
    artifact: Option<Artifact>,
    placement: Placement,
}

impl EngineOptions {
    /// Where a model would run: planned without its weights, from how they are stored.
    ///
    /// # Errors
    /// [`EngineError`] when the ranks do not fit the model, or several of them are not on the CPU.
    pub fn place(
        &self,
        descriptor: &Descriptor,
        stored: &Stored,
    ) -> Result<Placement, EngineError> {
        let single = PlacementRequest::single(self.device);
        let request = self.placement.as_ref().unwrap_or(&single);
        let placement = Placement::plan_stored(descriptor, request, stored)?;
        device::check_ranks(&placement)?;
        Ok(placement)
    }
}

/// The fusions of the options, sorted, once each.
fn fusions(options: &EngineOptions) -> Vec<Fusion> {
    let mut fusions = options.fusions.clone();
    fusions.sort();
    fusions.dedup();
    fusions
}

impl Engine {
    /// Lowers the descriptor and binds it to weights.
    ///
    /// # Errors
    /// [`EngineError`] when the policy or a shape is not supported, or a weight is missing.
    pub fn new(
        descriptor: Arc<Descriptor>,
        weights: &WeightSet,
        options: &EngineOptions,
    ) -> Result<Engine, EngineError> {
        let kind = match options.device {
            Device::Cpu => DeviceKind::Cpu,
            Device::Cuda(_) => DeviceKind::Cuda,
        };
        let policy = options.policy.resolve(kind)?;
        let fusions = fusions(options);
        let whole = lower(&descriptor);
        let plan = fuse(whole.clone(), &fusions);
        let placement = options.place(&descriptor, &weights.stored(&descriptor))?;
        let bound = check::bound(&descriptor, &plan, weights)?;
        let loaded = match placement.devices[..] {
            [_] => device::load(&plan, bound, policy, options)?,
            _ => device::load_ranks(&whole, &fusions, &placement, &bound, policy, options)?,
        };
        let weight_bytes = weights.size_bytes() as u64;
        let artifact = weights.artifact().cloned();
        let parts = Parts { descriptor, plan, policy, fusions, weight_bytes, artifact, placement };
        Ok(Engine::assemble(parts, loaded, options))
    }

    /// An engine over synthetic weights, which a CUDA device makes itself: the same bits as
    /// [`crate::weights::synth`] gives for the seed, without a copy on the host.
    ///
    /// # Errors
    /// As [`Engine::new`].
    pub fn synthetic(
        descriptor: Arc<Descriptor>,
        seed: u64,
        options: &EngineOptions,
    ) -> Result<Engine, EngineError> {
        let Device::Cuda(ordinal) = options.device else {
            let weights = crate::weights::synth(&descriptor, seed);
            return Engine::new(descriptor, &weights, options);
        };
        let policy = options.policy.resolve(DeviceKind::Cuda)?;
        let fusions = fusions(options);
        let placement = options.place(&descriptor, &Stored::default())?;
        let plan = fuse(lower(&descriptor), &fusions);
        let bound = check::synthetic(&descriptor, &plan, seed)?;
        let loaded = device::load_cuda(&plan, &bound.weights, policy, ordinal, options)?;
        let weight_bytes = bound.bytes;
        let artifact = None;
        let parts = Parts { descriptor, plan, policy, fusions, weight_bytes, artifact, placement };
        Ok(Engine::assemble(parts, loaded, options))
    }

    fn assemble(parts: Parts, loaded: Loaded, options: &EngineOptions) -> Engine {
        let limit = parts.descriptor.max_position_tokens;
        Engine {
            placement: parts.placement,
            plan: parts.plan,
            policy: parts.policy,
            home: Arc::new(Home {
                model: loaded.model,
                meter: Meter::new(options.memory_limit_bytes.or(loaded.capacity_bytes)),
            }),
            chunk_tokens: options.chunk_tokens.max(1),
            context_tokens: options.context_tokens.map_or(limit, |c| c.min(limit)),
            weight_bytes: parts.weight_bytes,
            artifact: parts.artifact,
            descriptor: parts.descriptor,
            isa: options.isa.unwrap_or_else(Isa::detect),
            fusions: parts.fusions,
        }
    }
}
