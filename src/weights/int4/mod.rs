//! Packed four-bit weights: which roles, from what, bound to which source.
//!
//! The format itself is [`crate::tensor::Int4`].

mod artifact;
pub(super) mod attach;
mod convert;
mod describe;
mod output;
mod pack;
mod plan;
mod recipe;
mod sidecar;
#[cfg(test)]
mod tests;
mod verify;

pub use artifact::{Artifact, Prefill};
pub use convert::{ConvertError, ConvertOptions, Converted, convert, partial_of};
pub use recipe::{QuantiseError, Recipe};
pub use sidecar::{
    Converter, ErrorRecord, ExpertRecord, FileRecord, LayoutRecord, PackedRecord, PartRecord,
    SIDECAR, SIDECAR_VERSION, Sidecar, SourceRecord, Treatment, WeightRecord,
};
pub use verify::{Check, Verification, verify};

pub(super) use artifact::PackedDigest;
pub(super) use attach::Attached;
pub(super) use recipe::Packer;
