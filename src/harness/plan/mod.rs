//! Plan: the trials a set of gate files expands into.

mod matrix;

pub use matrix::{AxisValue, Matrix};
