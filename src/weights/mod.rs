//! Logical weights: read from a checkpoint, or synthesised from a seed.

mod set;

pub use set::{WeightSet, WeightsSource};
