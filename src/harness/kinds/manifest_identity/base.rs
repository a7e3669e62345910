//! The execution that changes start from.

use crate::backend::Policy;
use crate::backend::cpu::Isa;
use crate::engine::manifest::{Execution, NumericalPolicy, RunFacts};
use crate::placement::{Device, Placement};
use crate::units::BUILD;
use crate::weights::{LoadOptions, Model, WeightsSource};
use std::path::Path;

/// A model of files with the facts of one run, read once so that nothing else moves.
#[derive(Debug)]
pub(super) struct Base {
    pub(super) model: Model,
    pub(super) source: WeightsSource,
    run: RunFacts,
}

impl Base {
    /// Opens a model folder.
    pub(super) fn open(folder: &Path) -> Result<Base, String> {
        let model = Model::open(folder).map_err(|e| e.to_string())?;
        let weights = model.load(&LoadOptions::default()).map_err(|e| e.to_string())?;
        let source = weights.source().clone();
        Ok(Base { model, source, run: RunFacts::probe(1, None) })
    }

    /// The unchanged execution.
    pub(super) fn execution(&self) -> Execution<'_> {
        let descriptor = &self.model.descriptor;
        Execution {
            descriptor,
            numerical_policy: NumericalPolicy::of(descriptor, Policy::Reference, Isa::detect()),
            placement: Placement::single(descriptor, Device::Cpu),
            page_tokens: 256,
            source: self.source.clone(),
            artifact: None,
            checkpoint: Some(&self.model.checkpoint),
            build: BUILD,
            run: self.run.clone(),
            device: None,
        }
    }
}
