//! Element types, BF16 rounding, and shared weight memory.

mod bf16;
mod dtype;
mod shared;

pub use bf16::{bf16_bits, bf16_from_bits, round_bf16};
pub use dtype::DType;
pub use shared::{Shared, Storage, Weight};
