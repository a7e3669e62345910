//! `quant_format`: the packed four-bit format agrees with an independent reading of its
//! definition, is a fixed point of itself, and refuses what it does not have.

mod contents;
pub(in crate::harness::kinds) mod definition;
mod gate;
mod refused;
#[cfg(test)]
mod tests;

pub(super) use gate::QuantFormat;
