//! The gate kinds: one module each, and one line in the registry.

mod chunk_consistency;
mod core_reference;
mod descriptor_snapshot;
mod device_facts;
mod generation_lifecycle;
mod instruction_sets;
mod loaded;
mod logits_source;
mod manifest_identity;
mod model_reference;
mod refusal;
mod region_invariance;
mod region_inventory;
mod resource_safety;
mod runner_probe;
mod sampling_distribution;
mod sampling_replay;
mod schedule_invariance;
mod state_checkpoint;
mod tokenizer_stream;

use super::kind::{DeviceUse, GateKind, KindSpec, PolicyUse};
use super::spec::{Diagnostic, Overrides, Reading, parse_kind};
use std::path::Path;
use std::sync::Arc;

/// How the harness knows a kind.
#[derive(Debug)]
pub(super) struct Registration {
    pub(super) name: &'static str,
    pub(super) device: DeviceUse,
    pub(super) policy: PolicyUse,
    pub(super) parse:
        fn(&Path, &str, &Reading, &Overrides) -> Result<Arc<dyn GateKind>, Diagnostic>,
    pub(super) schema: fn(&mut schemars::SchemaGenerator) -> schemars::Schema,
}

const fn kind<K: KindSpec>() -> Registration {
    Registration {
        name: K::NAME,
        device: K::DEVICE,
        policy: K::POLICY,
        parse: parse_kind::<K>,
        schema: K::json_schema,
    }
}

/// Every kind, by name.
pub(super) static REGISTRY: &[Registration] = &[
    kind::<chunk_consistency::ChunkConsistency>(),
    kind::<core_reference::CoreReference>(),
    kind::<descriptor_snapshot::DescriptorSnapshot>(),
    kind::<device_facts::DeviceFactsGate>(),
    kind::<generation_lifecycle::GenerationLifecycle>(),
    kind::<instruction_sets::InstructionSets>(),
    kind::<manifest_identity::ManifestIdentity>(),
    kind::<model_reference::ModelReference>(),
    kind::<refusal::Refusal>(),
    kind::<region_invariance::RegionInvariance>(),
    kind::<region_inventory::RegionInventory>(),
    kind::<resource_safety::ResourceSafety>(),
    kind::<sampling_distribution::SamplingDistribution>(),
    kind::<sampling_replay::SamplingReplay>(),
    kind::<schedule_invariance::ScheduleInvariance>(),
    kind::<state_checkpoint::StateCheckpoint>(),
    kind::<tokenizer_stream::TokenizerStream>(),
    kind::<runner_probe::RunnerProbe>(),
];

/// The kind of this name.
pub(super) fn find(name: &str) -> Option<&'static Registration> {
    REGISTRY.iter().find(|r| r.name == name)
}
