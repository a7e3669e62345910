//! `quant_kernel`: products with packed weights against an independent reading of the format in
//! FP64, for every number of rows.

mod bench;
mod gate;
#[cfg(test)]
mod tests;

pub(super) use gate::QuantKernel;
