//! The gate kinds: one module each, and one line in the registry.

mod capture_compare;
mod chunk_consistency;
mod collective;
mod core_reference;
mod descriptor_echo;
mod descriptor_snapshot;
mod device_facts;
mod equal_logits;
mod file_layouts;
mod fusion_equivalence;
mod generation_lifecycle;
mod instruction_sets;
mod loaded;
mod logits_source;
mod long_sequence;
mod manifest_identity;
mod model_reference;
mod placement_equivalence;
mod placement_plan;
mod quant_artifact;
mod quant_format;
mod quant_kernel;
mod refusal;
mod region_invariance;
mod region_inventory;
mod registry;
mod resource_safety;
mod routing;
mod runner_probe;
mod sampling_distribution;
mod sampling_replay;
mod schedule_invariance;
mod soak;
mod state_checkpoint;
mod tokenizer_stream;

pub(super) use registry::{REGISTRY, Registration, find};
