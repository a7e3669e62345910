//! Every kind, in one table: a new one adds its line here and its `mod` line beside.

use super::{
    capture_compare, chunk_consistency, collective, core_reference, descriptor_echo,
    descriptor_snapshot, device_facts, equal_logits, file_layouts, fusion_equivalence,
    generation_lifecycle, graph_equivalence, instruction_sets, long_sequence, manifest_identity,
    model_reference, placement_equivalence, placement_plan, quant_artifact, quant_format,
    quant_kernel, refusal, region_invariance, region_inventory, resource_safety, routing,
    runner_probe, sampling_distribution, sampling_replay, schedule_invariance, soak,
    state_checkpoint, tokenizer_stream,
};
use crate::harness::kind::{DeviceUse, GateKind, KindSpec, PolicyUse};
use crate::harness::spec::{Diagnostic, Overrides, Reading, parse_kind};
use std::path::Path;
use std::sync::Arc;

/// Reads a gate file's own keys as a kind.
type Parse = fn(&Path, &str, &Reading, &Overrides) -> Result<Arc<dyn GateKind>, Diagnostic>;

/// How the harness knows a kind.
#[derive(Debug)]
pub(in crate::harness) struct Registration {
    pub(in crate::harness) name: &'static str,
    pub(in crate::harness) device: DeviceUse,
    pub(in crate::harness) policy: PolicyUse,
    pub(in crate::harness) parse: Parse,
    pub(in crate::harness) schema: fn(&mut schemars::SchemaGenerator) -> schemars::Schema,
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
pub(in crate::harness) static REGISTRY: &[Registration] = &[
    kind::<capture_compare::CaptureCompare>(),
    kind::<chunk_consistency::ChunkConsistency>(),
    kind::<collective::Collective>(),
    kind::<core_reference::CoreReference>(),
    kind::<descriptor_echo::DescriptorEcho>(),
    kind::<descriptor_snapshot::DescriptorSnapshot>(),
    kind::<device_facts::DeviceFactsGate>(),
    kind::<equal_logits::EqualLogits>(),
    kind::<file_layouts::FileLayouts>(),
    kind::<fusion_equivalence::FusionEquivalence>(),
    kind::<core_reference::GdnExtremes>(),
    kind::<generation_lifecycle::GenerationLifecycle>(),
    kind::<graph_equivalence::GraphEquivalence>(),
    kind::<instruction_sets::InstructionSets>(),
    kind::<long_sequence::LongSequence>(),
    kind::<manifest_identity::ManifestIdentity>(),
    kind::<model_reference::ModelReference>(),
    kind::<placement_equivalence::PlacementEquivalence>(),
    kind::<placement_plan::PlacementPlan>(),
    kind::<quant_artifact::QuantArtifact>(),
    kind::<quant_format::QuantFormat>(),
    kind::<quant_kernel::QuantKernel>(),
    kind::<refusal::Refusal>(),
    kind::<region_invariance::RegionInvariance>(),
    kind::<region_inventory::RegionInventory>(),
    kind::<region_invariance::RegionReference>(),
    kind::<resource_safety::ResourceSafety>(),
    kind::<routing::Routing>(),
    kind::<sampling_distribution::SamplingDistribution>(),
    kind::<sampling_replay::SamplingReplay>(),
    kind::<schedule_invariance::ScheduleInvariance>(),
    kind::<soak::Soak>(),
    kind::<state_checkpoint::StateCheckpoint>(),
    kind::<tokenizer_stream::TokenizerStream>(),
    kind::<runner_probe::RunnerProbe>(),
];

/// The kind of this name.
pub(in crate::harness) fn find(name: &str) -> Option<&'static Registration> {
    REGISTRY.iter().find(|r| r.name == name)
}
