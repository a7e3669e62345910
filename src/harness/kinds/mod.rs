//! The gate kinds: one module each, and one line in the registry.

mod chunk_consistency;
mod core_reference;
mod descriptor_snapshot;
mod generation_lifecycle;
mod loaded;
mod logits_source;
mod manifest_identity;
mod model_reference;
mod refusal;
mod region_invariance;
mod region_inventory;
mod resource_safety;
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
    kind::<generation_lifecycle::GenerationLifecycle>(),
    kind::<model_reference::ModelReference>(),
    kind::<manifest_identity::ManifestIdentity>(),
    kind::<refusal::Refusal>(),
    kind::<region_inventory::RegionInventory>(),
    kind::<region_invariance::RegionInvariance>(),
    kind::<resource_safety::ResourceSafety>(),
    kind::<schedule_invariance::ScheduleInvariance>(),
    kind::<state_checkpoint::StateCheckpoint>(),
    kind::<sampling_distribution::SamplingDistribution>(),
    kind::<sampling_replay::SamplingReplay>(),
    kind::<tokenizer_stream::TokenizerStream>(),
];

/// The kind of this name.
pub(super) fn find(name: &str) -> Option<&'static Registration> {
    REGISTRY.iter().find(|r| r.name == name)
}
