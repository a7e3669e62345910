//! Packed four-bit weights: the format `int4_symmetric_group_bf16_scale`, version 1.
//!
//! A matrix `[N, K]` is cut along K into groups of 32, 64 or 128 values. A group has one scale
//! s = BF16(max|w| / 7), and 1 if all its values are zero; a value becomes the code
//! q = round-half-even(w / s), clipped to −7 … 7. The zero point is 0. Codes are two's-complement
//! nibbles, the lower K in the low half of a byte; the code −8 is invalid. The value of a code is
//! q · s in FP32.
//!
//! This module is the readable reference: what a converter writes and what kernels must agree with.

mod check;
mod error;
mod packed;
mod quantise;
mod shape;

pub use check::{check_codes, check_scales};
pub use error::Int4Error;
pub use packed::{Int4, Int4Plan};
pub use quantise::{dequantise_row, quantise, quantise_row};
pub use shape::{INT4_FORMAT, INT4_GROUPS, INT4_TILE_ROWS, INT4_VERSION, Int4Shape, widest_group};
