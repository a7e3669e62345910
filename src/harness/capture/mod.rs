//! Captures: what an execution computed for fixed prompts, stamped with its manifest, and the rules
//! under which two of them are compared.
//!
//! A capture is one safetensors file. Its tensors are named `logits.NAME`, `greedy.NAME`,
//! `tap.NAME.…` and `state.NAME.layers.i.{recurrent,conv}`; its metadata holds the manifest
//! (`manifest`) and what was executed (`capture`). See `docs/identities.md`.

mod admission;
mod arrays;
mod compare;
mod destination;
mod error;
mod first;
mod info;
mod prompts;
mod read;
mod record;
mod repro;
mod verdict;
mod write;

#[cfg(test)]
mod tests;

pub use admission::{Across, Admission, Mode, admit};
pub use arrays::{ArrayComparison, ArrayState};
pub use compare::{CaptureComparison, compare};
pub use destination::destination;
pub use error::CaptureError;
pub use first::{CannotWalk, FirstDifference, HOW_TO_RECORD, LOGITS, Walk, first_difference};
pub use info::{CAPTURE_VERSION, CaptureInfo, CaseRun, PromptInfo};
pub use prompts::{Prompt, PromptContent, PromptSource, parse_prompts};
pub use read::Capture;
pub use record::{EVERY_TAP, RecordOptions, Recorded, record};
pub use repro::write_repro;
