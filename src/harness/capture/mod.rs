//! Captures: what an execution computed for fixed prompts, stamped with its manifest, and the rules
//! under which two of them are compared.
//!
//! A capture is one safetensors file. Its tensors are named `logits.NAME`, `greedy.NAME`,
//! `tap.NAME.…` and `state.NAME.layers.i.{recurrent,conv}`; its metadata holds the manifest
//! (`manifest`) and what was executed (`capture`). See `docs/identities.md`.

mod admission;
mod arrays;
mod compare;
mod error;
mod info;
mod prompts;
mod read;
mod record;
mod verdict;
mod write;

pub use admission::{Across, Admission, Mode, admit};
pub use arrays::{ArrayComparison, ArrayState};
pub use compare::{CaptureComparison, compare};
pub use error::CaptureError;
pub use info::{CAPTURE_VERSION, CaptureInfo, CaseRun, PromptInfo};
pub use prompts::{Prompt, PromptContent, PromptSource, parse_prompts};
pub use read::Capture;
pub use record::{RecordOptions, Recorded, record};
