//! Data that makes differences of order and rounding visible.

use crate::tensor::{bf16_bits, bf16_from_bits};
use crate::units::SplitMix64;

/// A kind of data for a matrix instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Adversary {
    /// Weights and activations of an ordinary layer.
    Normal,
    /// Magnitudes over forty binary orders in one sum.
    Mixed,
    /// Pairs of products that cancel but for their last bits.
    Cancelling,
    /// Magnitudes up to the ends of the exponent range, without overflow.
    Wide,
    /// Products around and below the smallest normal FP32 number.
    Subnormal,
}

impl Adversary {
    /// Every kind.
    pub const ALL: [Adversary; 5] = [
        Adversary::Normal,
        Adversary::Mixed,
        Adversary::Cancelling,
        Adversary::Wide,
        Adversary::Subnormal,
    ];

    /// The name in evidence.
    pub fn name(self) -> &'static str {
        match self {
            Adversary::Normal => "normal",
            Adversary::Mixed => "mixed",
            Adversary::Cancelling => "cancelling",
            Adversary::Wide => "wide",
            Adversary::Subnormal => "subnormal",
        }
    }

    fn exponents(self) -> std::ops::Range<i32> {
        match self {
            Adversary::Normal | Adversary::Cancelling => -2..2,
            Adversary::Mixed => -20..20,
            Adversary::Wide => -60..60,
            Adversary::Subnormal => -75..-60,
        }
    }

    /// A row of `k` BF16 elements. `negate_pairs` makes the second of a pair the negative of the
    /// first, nearly, where the kind asks for cancellation: A's side; B's pairs are equal.
    pub fn row(self, random: &mut SplitMix64, k: usize, negate_pairs: bool) -> Vec<u16> {
        let mut row: Vec<u16> = (0..k).map(|_| number(random, self.exponents())).collect();
        if self == Adversary::Cancelling {
            for pair in row.chunks_exact_mut(2) {
                let off_by_one = u16::from(negate_pairs && random.next_word().is_multiple_of(4));
                pair[1] = pair[0] ^ off_by_one ^ if negate_pairs { 0x8000 } else { 0 };
            }
        }
        row
    }

    /// A start value of an accumulator, FP32 bits; every fourth is zero.
    pub fn start(self, random: &mut SplitMix64) -> u32 {
        if random.next_word().is_multiple_of(4) {
            return 0;
        }
        let exponents = self.exponents();
        let high = bf16_from_bits(number(random, exponents.start * 2..exponents.end * 2));
        high.to_bits() | (random.next_word() & 0xffff) as u32
    }
}

/// ±1.xxxxxxx · 2^e.
fn number(random: &mut SplitMix64, exponents: std::ops::Range<i32>) -> u16 {
    let word = random.next_word();
    let span = (exponents.end - exponents.start) as u64;
    let exponent = (exponents.start + ((word >> 16) % span) as i32 + 127).clamp(0, 254) as u16;
    (((word >> 8) & 1) as u16) << 15 | exponent << 7 | (word & 0x7f) as u16
}

/// A small scale for [`fill_element`] that gives a standard deviation of `deviation`.
pub(super) fn fill_scale(deviation: f64) -> f32 {
    // Four uniform 16-bit fields: variance 4 · (2^32 − 1) / 12.
    (deviation / 37837.2) as f32
}

/// Element `index` of a device fill, on the host: the same bits as `fill_normal_bf16`.
pub(super) fn fill_element(seed: u64, index: u64, scale: f32) -> u16 {
    let mut z =
        (seed ^ index.wrapping_mul(0xd134_2543_de82_ef95)).wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^= z >> 31;
    let sum: i64 = (0..4).map(|i| ((z >> (16 * i)) & 0xffff) as i64).sum::<i64>() - 131_070;
    bf16_bits(sum as f32 * scale)
}
