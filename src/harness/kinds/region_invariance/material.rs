//! Seeded, non-trivial inputs.

use crate::tensor::{Shared, Storage, Weight, bf16_bits, round_bf16};
use crate::units::SplitMix64;

/// `count` values of mixed sign and magnitude (a factor of 64 apart), BF16-rounded if `round`.
///
/// Sums of such values depend on their order: a reduction that is cut differently does not get the
/// same bits by luck.
pub(super) fn values(count: usize, seed: u64, scale: f32, round: bool) -> Vec<f32> {
    let mut rng = SplitMix64::new(seed);
    (0..count)
        .map(|_| {
            let word = rng.next_word();
            let unit = (word >> 40) as f32 / 8_388_608.0 - 1.0;
            let magnitude = [0.125, 1.0, 1.0, 8.0][(word & 3) as usize];
            let value = unit * magnitude * scale;
            if round { round_bf16(value) } else { value }
        })
        .collect()
}

/// A BF16 weight of `rows × cols`.
pub(super) fn weight(rows: usize, cols: usize, seed: u64, scale: f32) -> Weight {
    let bits = values(rows * cols, seed, scale, true).into_iter().map(bf16_bits).collect();
    Weight { rows, cols, storage: Storage::Bf16(Shared::owned(bits)) }
}

/// `width` different integers below `bound` in every row.
pub(super) fn distinct(rows: usize, width: usize, bound: usize, seed: u64) -> Vec<f32> {
    let mut rng = SplitMix64::new(seed);
    let mut all = Vec::with_capacity(rows * width);
    for _ in 0..rows {
        let mut left: Vec<usize> = (0..bound).collect();
        for _ in 0..width.min(bound) {
            let at = (rng.next_word() % left.len() as u64) as usize;
            all.push(left.swap_remove(at) as f32);
        }
    }
    all
}
