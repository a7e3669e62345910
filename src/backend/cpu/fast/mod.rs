//! Kernels of policy `fast`.
//!
//! Weights are copied once into panels of 16 rows ([`Panels`]); kernels are written once over the
//! vectors of an instruction set ([`simd::Simd`]) and compiled for each ([`simd::dispatch!`]). One
//! order serves every case: an output is one chain over ascending k in its own lane, so decode,
//! batches, prefill tiles, chunks and threads cannot change its bits. `docs/numerics.md` states the
//! order per instruction set.

mod attention;
mod cache;
mod gdn;
mod gemm;
mod kernels;
mod one_token;
mod panels;
mod simd;
#[cfg(test)]
mod tests;
mod tiles;
#[cfg(target_arch = "x86_64")]
mod x86;

pub(super) use attention::attention;
pub(super) use cache::{PanelPage, write};
pub(super) use gdn::{Part, gdn_commit, gdn_rows};
pub(super) use gemm::{Product, gemm, products};
pub use kernels::Kernels;
pub(super) use kernels::Set;
pub(super) use panels::{Panels, Repacked, pack};
pub(super) use simd::Portable;
#[cfg(target_arch = "x86_64")]
pub(super) use x86::{Avx2, Avx512, Avx512Bf16};
