//! `core_reference`: the cores of the mixers against their definitions in FP64, at every position.

mod extremes;
mod fp64;
mod inputs;
mod kind;
mod run;
#[cfg(test)]
mod tests;

pub(super) use extremes::GdnExtremes;
pub(super) use kind::{Bound, CoreReference, decide};
