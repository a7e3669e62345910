//! Regions `gemm` and `gemm_f32` on packed four-bit weights.
//!
//! [`oracle`] has the bits of a checkpoint of the dequantised weights; `f32` and `reference` use
//! it. [`product`] is the kernel of `fast`: exact integer sums inside a group, so that every
//! instruction set, row count and chunking gives the same bits.

mod activations;
mod kernel;
mod matrix;
mod oracle;
mod panel;
mod product;
#[cfg(target_arch = "x86_64")]
mod x86;

pub(super) use matrix::{Packed, Reads, Rounding, Taken, take};
pub(super) use panel::Panel;
pub(super) use product::{Product, int4_products, of_one_group};
