//! Element types, arithmetic with the same bits on every machine, and shared weight memory.

mod bf16;
mod difference;
mod dtype;
mod float8;
mod int4;
mod math64;
mod part;
mod segments;
mod shared;
mod trig64;

pub use bf16::{bf16_bits, bf16_from_bits, round_bf16};
pub use difference::{Difference, LengthMismatch};
pub use dtype::DType;
pub use float8::{e4m3_bits, e4m3_from_bits, e5m2_bits, e5m2_from_bits};
pub use int4::{
    INT4_FORMAT, INT4_GROUPS, INT4_TILE_ROWS, INT4_VERSION, Int4, Int4Error, Int4Plan, Int4Shape,
    check_codes, check_scales, dequantise_row, quantise, quantise_row, widest_group,
};
pub use math64::{exp64, ln64};
pub use part::PartError;
pub use segments::{add_as_tree, segments};
pub use shared::{Element, Shared, Storage, Weight};
pub use trig64::sin_cos64;
