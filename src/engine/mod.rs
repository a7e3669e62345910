//! The engine: owns weights, plan and policy; executes batches over sequences.

mod batch;
mod error;

pub use batch::{Entry, Output, RowOutput, RowWant, Want};
pub use error::{EngineError, SequenceError};
