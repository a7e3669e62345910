//! The execution manifest: which execution a result observed.
//!
//! Eight blocks, each `{ "fields": {…}, "<name>_id": "<hex>" }`, the id being the SHA-256 of the
//! block's fields as canonical JSON ([`crate::units::Canonical`]). Three of them are identities:
//! `semantic` (what the model means), `numerical_policy` (how it is computed), `deployment` (where
//! it ran). `docs/identities.md` explains every field.
//!
//! A fact that is not established is spelt `unknown`, `unavailable`, `unsupported` or
//! `unspecified`, never defaulted; `not_applicable` is an established fact.

mod assemble;
mod block;
mod build;
mod compare;
mod deployment;
mod document;
mod numerical_policy;
mod quantization;
mod read;
mod run;
mod show;
mod storage;
mod weights;

pub use assemble::Execution;
pub use block::{Block, BlockName, NOT_APPLICABLE, leaves, unestablished};
pub use build::build_fields;
pub use compare::{BlockDifference, FieldDifference, Informational, ManifestDifference, compare};
pub use deployment::deployment_fields;
pub use document::{MANIFEST_VERSION, Manifest};
pub use numerical_policy::{NumericalPolicy, SamplerTransform};
pub use quantization::Quantization;
pub use read::ManifestError;
pub use run::{RunFacts, run_fields};
pub use storage::storage_fields;
pub use weights::{artifact_fields, source_fields};
