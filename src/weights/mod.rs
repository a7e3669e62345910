//! Logical weights: read from a checkpoint, or synthesised from a seed.
//!
//! [`Checkpoint::open`] maps and checks safetensors files, [`Checkpoint::load`] resolves the roles
//! of a descriptor to rows of their tensors. What is refused, and why, is in `docs/checkpoints.md`.

mod checkpoint;
mod claims;
mod error;
mod file;
mod header;
mod identity;
mod int4;
mod json;
mod load;
mod model;
mod resolve;
mod rule;
mod set;
mod shards;
mod synth;
#[cfg(test)]
mod tests;
mod write;

pub use checkpoint::Checkpoint;
pub use error::{CheckpointError, Place};
pub use header::TensorEntry;
pub use identity::full_content_digest;
pub use int4::{
    Artifact, Check, ConvertError, ConvertOptions, Converted, Converter, ErrorRecord, ExpertRecord,
    FileRecord, LayoutRecord, PackedRecord, PartRecord, Prefill, QuantiseError, Recipe, SIDECAR,
    SIDECAR_VERSION, Sidecar, SourceRecord, Treatment, Verification, WeightRecord, convert,
    partial_of, verify,
};
pub use load::{LoadOptions, Progress};
pub use model::{Model, ModelError};
pub use rule::Rule;
pub use set::{WeightSet, WeightsSource};
pub use synth::{
    SYNTHETIC_GENERATOR, SYNTHETIC_VERSION, SyntheticLaw, SyntheticWeight, synth, synth_quantised,
    synth_source,
};
pub use write::{WriteError, WriteOptions, write_weights};
