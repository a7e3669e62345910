//! From the facts of an execution to its manifest.

use super::{
    BlockName, Manifest, NumericalPolicy, RunFacts, artifact_fields, build_fields,
    deployment_fields, run_fields, source_fields, storage_fields,
};
use crate::backend::cpu::BLOCK_TOKENS;
use crate::backend::{DeviceKind, DeviceProvenance};
use crate::descriptor::Descriptor;
use crate::engine::Engine;
use crate::placement::Placement;
use crate::units::{BUILD, Build};
use crate::weights::{Artifact, Checkpoint, WeightsSource};

/// Everything a manifest is made from.
#[derive(Clone, Debug)]
pub struct Execution<'a> {
    pub descriptor: &'a Descriptor,
    pub numerical_policy: NumericalPolicy,
    pub placement: Placement,
    /// Tokens of one page of the attention caches.
    pub page_tokens: usize,
    pub source: WeightsSource,
    /// The packed part of the weights, if some are.
    pub artifact: Option<Artifact>,
    /// The files the weights came from; `None` for synthetic ones.
    pub checkpoint: Option<&'a Checkpoint>,
    pub build: Build,
    pub run: RunFacts,
    /// The device, if it is not the host.
    pub device: Option<DeviceProvenance>,
}

impl<'a> Execution<'a> {
    /// The execution of `engine`, which was made from weights of this source, in this process.
    pub fn of(
        engine: &'a Engine,
        source: &WeightsSource,
        checkpoint: Option<&'a Checkpoint>,
        threads: usize,
    ) -> Execution<'a> {
        let full_content = match source {
            WeightsSource::Checkpoint { full_content, .. } => *full_content,
            WeightsSource::Synthetic { .. } => None,
        };
        Execution {
            descriptor: engine.descriptor(),
            numerical_policy: NumericalPolicy {
                fusions: engine.fusions().to_vec(),
                ..match engine.device() {
                    DeviceKind::Cpu => {
                        NumericalPolicy::of(engine.descriptor(), engine.policy(), engine.isa())
                    }
                    DeviceKind::Cuda => {
                        NumericalPolicy::on_cuda(engine.descriptor(), engine.policy())
                    }
                }
            }
            .with_artifact(engine.artifact())
            .placed(engine.placement()),
            placement: engine.placement().clone(),
            page_tokens: BLOCK_TOKENS,
            source: source.clone(),
            artifact: engine.artifact().cloned(),
            checkpoint,
            build: BUILD,
            run: RunFacts::probe(threads, full_content),
            device: engine.provenance(),
        }
    }

    /// Its manifest.
    pub fn manifest(&self) -> Manifest {
        Manifest::new(|name| match name {
            BlockName::Semantic => self.descriptor.semantic(),
            BlockName::NumericalPolicy => self.numerical_policy.fields(),
            BlockName::Deployment => deployment_fields(&self.placement, self.page_tokens),
            BlockName::Storage => storage_fields(self.descriptor.storage(), self.checkpoint),
            BlockName::WeightsSource => source_fields(&self.source),
            BlockName::WeightsArtifact => artifact_fields(self.artifact.as_ref(), &self.source),
            BlockName::Build => build_fields(&self.build, self.device.as_ref()),
            BlockName::Run => run_fields(&self.run, self.device.as_ref()),
        })
    }
}
