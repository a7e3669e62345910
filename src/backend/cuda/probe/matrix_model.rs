//! A bit model of a matrix instruction: what one element's sum does with its terms.
//!
//! The family of models: the terms of a block (products of BF16 numbers, exact, and the
//! accumulator) are aligned to the largest exponent among them, cut off towards zero `fraction`
//! bits below it, added exactly, and the sum is brought to FP32 by one rounding. An instruction is
//! one block, or several in ascending k. Search over the family asks which member explains a
//! device; none may.

use serde::Serialize;

/// How a block's sum becomes FP32.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Rounding {
    TowardsZero,
    NearestEven,
}

/// A member of the family.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct MatrixModel {
    /// Products added at once.
    pub block: usize,
    /// Bits kept below the largest exponent.
    pub fraction: i32,
    pub rounding: Rounding,
}

/// sign · mantissa · 2^lsb; `head` is the exponent that alignment looks at.
#[derive(Clone, Copy)]
struct Term {
    mantissa: i64,
    lsb: i32,
    head: i32,
}

impl MatrixModel {
    /// Every member that a search tries, simplest first.
    pub fn family() -> Vec<MatrixModel> {
        let mut all = Vec::new();
        for rounding in [Rounding::TowardsZero, Rounding::NearestEven] {
            for block in [16, 8, 4] {
                for fraction in 22..=28 {
                    all.push(MatrixModel { block, fraction, rounding });
                }
            }
        }
        all
    }

    /// c + Σ a·b as FP32 bits, in ascending blocks. Finite inputs only.
    pub fn element(&self, a: &[u16], b: &[u16], c: u32) -> u32 {
        a.chunks(self.block).zip(b.chunks(self.block)).fold(c, |c, (a, b)| self.block_sum(a, b, c))
    }

    fn block_sum(&self, a: &[u16], b: &[u16], c: u32) -> u32 {
        let mut terms: Vec<Term> = a.iter().zip(b).map(|(a, b)| product(*a, *b)).collect();
        terms.push(fp32(c));
        terms.retain(|t| t.mantissa != 0);
        let Some(head) = terms.iter().map(|t| t.head).max() else { return 0 };
        let unit = head - self.fraction;
        let sum: i128 = terms.iter().map(|t| aligned(t, unit)).sum();
        to_fp32(sum, unit, self.rounding)
    }
}

fn parts(bits: u32, fraction_bits: u32) -> (i64, i32) {
    let exponent = (bits >> fraction_bits & 0xff) as i32;
    let fraction = i64::from(bits & ((1 << fraction_bits) - 1));
    let (mantissa, exponent) = if exponent == 0 {
        (fraction, -126)
    } else {
        (fraction | 1 << fraction_bits, exponent - 127)
    };
    let negative = bits >> (fraction_bits + 8) & 1 == 1;
    (if negative { -mantissa } else { mantissa }, exponent)
}

fn product(a: u16, b: u16) -> Term {
    let ((ma, ea), (mb, eb)) = (parts(u32::from(a), 7), parts(u32::from(b), 7));
    Term { mantissa: ma * mb, lsb: ea + eb - 14, head: ea + eb }
}

fn fp32(bits: u32) -> Term {
    let (mantissa, exponent) = parts(bits, 23);
    Term { mantissa, lsb: exponent - 23, head: exponent }
}

/// The term in units of 2^unit, cut off towards zero.
fn aligned(term: &Term, unit: i32) -> i128 {
    let mantissa = i128::from(term.mantissa);
    let shift = term.lsb - unit;
    if shift >= 0 {
        mantissa << shift.min(90)
    } else if shift > -100 {
        mantissa.signum() * (mantissa.abs() >> -shift)
    } else {
        0
    }
}

fn to_fp32(sum: i128, unit: i32, rounding: Rounding) -> u32 {
    if sum == 0 {
        return 0;
    }
    let sign = u32::from(sum < 0) << 31;
    let magnitude = sum.unsigned_abs();
    let top = 127 - magnitude.leading_zeros() as i32 + unit;
    let lsb = (top - 23).max(-149);
    let shift = lsb - unit;
    let mut mantissa = if shift <= 0 { magnitude << -shift } else { magnitude >> shift.min(127) };
    if shift > 0 && shift < 127 && rounding == Rounding::NearestEven {
        let (rest, half) = (magnitude & ((1 << shift) - 1), 1u128 << (shift - 1));
        mantissa += u128::from(rest > half || (rest == half && mantissa & 1 == 1));
    }
    let mut exponent = (lsb + 23 + 127) as u32;
    if mantissa >> 24 != 0 {
        mantissa >>= 1;
        exponent += 1;
    }
    if exponent >= 255 {
        return sign | 0x7f80_0000;
    }
    // A subnormal has exponent field 0 and no hidden bit.
    if mantissa >> 23 == 0 {
        return sign | mantissa as u32;
    }
    sign | exponent << 23 | (mantissa as u32 & 0x7f_ffff)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tensor::bf16_bits;

    fn bits(values: &[f32]) -> Vec<u16> {
        values.iter().map(|v| bf16_bits(*v)).collect()
    }

    #[test]
    fn exact_sums_are_exact_in_every_model() {
        let (a, b) = (bits(&[1.5, -2.0, 0.25, 8.0]), bits(&[2.0, 3.0, -4.0, 0.5]));
        for model in MatrixModel::family() {
            let found = f32::from_bits(model.element(&a, &b, 10.0f32.to_bits()));
            assert_eq!(found, 10.0 + 3.0 - 6.0 - 1.0 + 4.0, "{model:?}");
        }
    }

    #[test]
    fn cut_off_and_rounding_show() {
        let model = |fraction, rounding| MatrixModel { block: 16, fraction, rounding };
        // 1 + 3·2^-25: three quarters of the last place.
        let (a, b) = (bits(&[3.0]), bits(&[2f32.powi(-25)]));
        let one = 1.0f32.to_bits();
        assert_eq!(model(25, Rounding::TowardsZero).element(&a, &b, one), one);
        assert_eq!(model(25, Rounding::NearestEven).element(&a, &b, one), one + 1);
        assert_eq!(model(23, Rounding::NearestEven).element(&a, &b, one), one);
        // Alignment cuts each term: two halves of the last kept bit are lost, together they count.
        let (a, b) = (bits(&[1.0, 1.0]), bits(&[2f32.powi(-24), 2f32.powi(-24)]));
        assert_eq!(model(23, Rounding::TowardsZero).element(&a, &b, one), one);
        assert_eq!(model(24, Rounding::TowardsZero).element(&a, &b, one), one + 1);
    }

    #[test]
    fn subnormals_zero_and_overflow() {
        let model = MatrixModel { block: 16, fraction: 25, rounding: Rounding::TowardsZero };
        let tiny = bits(&[2f32.powi(-70)]);
        assert_eq!(model.element(&tiny, &tiny, 0), 1 << 9, "2^-140 is subnormal");
        assert_eq!(model.element(&[0x8000], &bits(&[1.0]), 0x8000_0000), 0);
        let huge = bits(&[2f32.powi(100)]);
        assert_eq!(model.element(&huge, &huge, 0), f32::INFINITY.to_bits());
    }
}
