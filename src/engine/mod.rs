//! The engine: owns weights, plan and policy; executes batches over sequences.
//!
//! One call does all forward work: [`Engine::forward`] over a [`Batch`] whose entries are exclusive
//! sequences. Prefill, decode and verification are thin names for it.

mod batch;
mod build;
mod check;
mod device;
#[expect(clippy::module_inception, reason = "the type is the module's idea")]
mod engine;
mod error;
mod lower;
mod lower_ffn;
mod lower_mla;
pub mod manifest;
mod meter;
mod profile;
mod ranks;
mod sequence;

pub use crate::backend::{Phase, RowOutput, RowWant, StateTensor, Tap, Taps};
pub use batch::{Batch, Entry, Output, Want};
pub use engine::{Engine, EngineOptions};
pub use error::{EngineError, SequenceError};
pub use sequence::{Sequence, SequenceCheckpoint};
