//! The model of an engine on its device.

use super::ranks::ranked_model;
use super::{EngineError, EngineOptions};
use crate::backend::cpu::{CpuModel, CpuOptions, Isa};
use crate::backend::cuda::{BoundWeight, CudaModel, CudaOptions, Joins};
use crate::backend::{DeviceModel, Fusion, Plan, Policy, WeightRef};
use crate::placement::{Device, Placement};
use crate::tensor::Weight;
use std::collections::HashMap;

/// A model on a device, with what of the device's memory its sequences may take.
pub(super) struct Loaded {
    pub(super) model: Box<dyn DeviceModel>,
    /// `None` where the operating system says when memory is short.
    pub(super) capacity_bytes: Option<u64>,
}

/// Brings a plan and its weights to the device of the options; `policy` is resolved.
pub(super) fn load(
    plan: &Plan,
    weights: HashMap<WeightRef, Weight>,
    policy: Policy,
    options: &EngineOptions,
) -> Result<Loaded, EngineError> {
    match options.device {
        Device::Cpu => {
            let model = CpuModel::new(plan.clone(), weights, &cpu_options(policy, options));
            let model = model.map_err(EngineError::Unsupported)?;
            Ok(Loaded { model: Box::new(model), capacity_bytes: None })
        }
        Device::Cuda(ordinal) => {
            let weights = weights.into_iter().map(|(r, w)| (r, BoundWeight::Host(w))).collect();
            load_cuda(plan, &weights, policy, ordinal, options)
        }
    }
}

fn cpu_options(policy: Policy, options: &EngineOptions) -> CpuOptions {
    CpuOptions {
        policy,
        isa: options.isa.unwrap_or_else(Isa::detect),
        threads: options.threads,
        poison: options.poison,
    }
}

/// As [`load`] for several ranks, which are threads of this process; `whole` is the plan of one device
/// before fusions.
pub(super) fn load_ranks(
    whole: &Plan,
    fusions: &[Fusion],
    placement: &Placement,
    weights: &HashMap<WeightRef, Weight>,
    policy: Policy,
    options: &EngineOptions,
) -> Result<Loaded, EngineError> {
    let cpu = cpu_options(policy, options);
    let model = ranked_model(whole, fusions, placement, weights, &cpu)?;
    Ok(Loaded { model: Box::new(model), capacity_bytes: None })
}

/// Refuses several ranks on GPUs.
pub(super) fn check_ranks(placement: &Placement) -> Result<(), EngineError> {
    match &placement.devices[..] {
        [_] => Ok(()),
        ranks if ranks.iter().all(|device| *device == Device::Cpu) => Ok(()),
        ranks => Err(EngineError::Unsupported(format!(
            "{} ranks on GPUs: several ranks execute on the CPU only (--device cpu)",
            ranks.len()
        ))),
    }
}

/// As [`load`] for a CUDA device, whose weights may be made there.
pub(super) fn load_cuda(
    plan: &Plan,
    weights: &HashMap<WeightRef, BoundWeight>,
    policy: Policy,
    ordinal: usize,
    options: &EngineOptions,
) -> Result<Loaded, EngineError> {
    let cuda = CudaOptions {
        policy,
        ordinal,
        poison: options.poison,
        graphs: options.graphs,
        joins: Joins::without(&options.apart),
    };
    let model = CudaModel::new(plan.clone(), weights, cuda).map_err(EngineError::Unsupported)?;
    let capacity_bytes = Some(model.capacity_bytes(options.chunk_tokens));
    Ok(Loaded { model: Box::new(model), capacity_bytes })
}
