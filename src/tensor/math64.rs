//! FP64 exponential and logarithm with the same bits on every machine.
//!
//! The platform's `libm` differs between systems, so sampled tokens and log-probabilities would
//! too. These are built from IEEE additions, multiplications and divisions alone, in a fixed
//! order, never contracted to fused multiply-adds (Rust does not contract on its own).
//!
//! # Numerics
//! Largest error found against 34-digit arithmetic over 400,000 arguments: [`exp64`] 0.86 ulp where
//! the result is a normal number (0.75 ulp where it is subnormal), [`ln64`] 0.93 ulp.
//! `scripts/make_math64_vectors.py` makes the committed test vectors.

use std::f64::consts::LOG2_E;

/// Upper part of ln 2: 32 significant bits, so that k · `LN2_HIGH` is exact for |k| < 2^21.
const LN2_HIGH: f64 = f64::from_bits(0x3fe6_2e42_fee0_0000);
/// ln 2 − `LN2_HIGH`, rounded to FP64.
const LN2_LOW: f64 = f64::from_bits(0x3dea_39ef_3579_3c76);

/// Adding and subtracting 1.5 · 2^52 rounds to the nearest integer, ties to even.
const ROUND_TO_INTEGER: f64 = 6_755_399_441_055_744.0;

/// e^x, for x from −∞ to 0 and as far above as the result is finite (x ≤ 709.78).
///
/// e^0 is exactly 1. Results below the smallest subnormal are 0, which the sampler reads as no
/// mass. NaN gives NaN; x above 709.78 gives infinity.
///
/// # Numerics
/// x = k ln 2 + r, |r| ≤ ln 2 / 2, in two parts; the Taylor polynomial of degree 13 in r by
/// Horner's rule (remainder below 5e-18); scaling by 2^k in two exact halves, so that only
/// subnormal results round twice. Free of branches, so that a loop over it vectorises.
#[inline(always)]
pub fn exp64(x: f64) -> f64 {
    // Comparisons that keep NaN: both are false for it.
    let clamped = if x < -800.0 { -800.0 } else { x };
    let clamped = if clamped > 800.0 { 800.0 } else { clamped };
    let shifted = clamped * LOG2_E + ROUND_TO_INTEGER;
    let k = shifted - ROUND_TO_INTEGER;
    let high = clamped - k * LN2_HIGH;
    let low = k * LN2_LOW;
    let r = high - low;
    let lost = (high - r) - low;

    // Σ r^n / n! for n = 2..=13, divided by r²; the coefficients are 1/n! rounded to FP64.
    let mut q = 1.0 / 6_227_020_800.0;
    q = q * r + 1.0 / 479_001_600.0;
    q = q * r + 1.0 / 39_916_800.0;
    q = q * r + 1.0 / 3_628_800.0;
    q = q * r + 1.0 / 362_880.0;
    q = q * r + 1.0 / 40_320.0;
    q = q * r + 1.0 / 5_040.0;
    q = q * r + 1.0 / 720.0;
    q = q * r + 1.0 / 120.0;
    q = q * r + 1.0 / 24.0;
    q = q * r + 1.0 / 6.0;
    q = q * r + 0.5;
    let value = 1.0 + (r + (r * r * q + lost));

    // The low bits of `shifted` hold k; 2^k is applied as 2^⌊k/2⌋ · 2^(k − ⌊k/2⌋), each normal.
    let k = (shifted.to_bits() as i64).wrapping_sub(ROUND_TO_INTEGER.to_bits() as i64);
    let half = k >> 1;
    value * power_of_two(half) * power_of_two(k - half)
}

/// 2^n for −1022 ≤ n ≤ 1023.
#[inline(always)]
fn power_of_two(n: i64) -> f64 {
    f64::from_bits((n.wrapping_add(1023) as u64) << 52)
}

/// ln x.
///
/// ln 1 is exactly 0; ln 0 is −∞; ln ∞ is ∞; a negative x or NaN gives NaN.
///
/// # Numerics
/// x = 2^k · m with √½ < m ≤ √2; with f = m − 1 and s = f / (2 + f),
/// ln m = 2 artanh s = f − s (f − R), R = 2 Σ s^2n / (2n + 1) for n = 1..=11 (remainder below
/// 1e-18); k ln 2 is added in two parts, the small one first.
pub fn ln64(x: f64) -> f64 {
    if x.is_nan() || x < 0.0 {
        return f64::NAN;
    }
    if x == 0.0 {
        return f64::NEG_INFINITY;
    }
    if x == f64::INFINITY {
        return x;
    }
    // Subnormals are scaled into the normal range first, exactly.
    let (x, shift) = if x < f64::MIN_POSITIVE { (x * power_of_two(54), -54) } else { (x, 0) };
    let bits = x.to_bits();
    let mut exponent = ((bits >> 52) as i64) - 1023;
    let mut m = f64::from_bits((bits & 0x000f_ffff_ffff_ffff) | (1023 << 52));
    if m > std::f64::consts::SQRT_2 {
        m *= 0.5;
        exponent += 1;
    }
    let k = (exponent + shift) as f64;
    let f = m - 1.0;
    let s = f / (2.0 + f);
    let z = s * s;
    let mut series = 2.0 / 23.0;
    for odd in [21.0, 19.0, 17.0, 15.0, 13.0, 11.0, 9.0, 7.0, 5.0, 3.0] {
        series = series * z + 2.0 / odd;
    }
    let correction = s * (f - series * z);
    k * LN2_HIGH - ((correction - k * LN2_LOW) - f)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lines `exp|ln BITS_OF_X BITS_OF_NEAREST_RESULT`, by mpmath with 60 digits.
    const VECTORS: &str = include_str!("math64_vectors.txt");

    #[test]
    fn within_one_ulp_of_sixty_digit_arithmetic() {
        let mut checked = [0usize; 2];
        for line in VECTORS.lines().filter(|l| !l.starts_with('#')) {
            let fields: Vec<&str> = line.split_whitespace().collect();
            let bits = |field: &str| u64::from_str_radix(field, 16).unwrap();
            let x = f64::from_bits(bits(fields[1]));
            let expected = f64::from_bits(bits(fields[2]));
            let (kind, ours) = match fields[0] {
                "exp" => (0, exp64(x)),
                _ => (1, ln64(x)),
            };
            // Adjacent FP64 numbers of one sign have adjacent bit patterns.
            assert_eq!(ours.is_sign_negative(), expected.is_sign_negative(), "{line}");
            let ulps = ours.to_bits().abs_diff(expected.to_bits());
            assert!(ulps <= 1, "{line}: {x:e} gives {ours:e}, nearest is {expected:e}");
            checked[kind] += 1;
        }
        assert!(checked.iter().all(|n| *n > 150), "{checked:?}");
    }

    #[test]
    fn exp_at_the_edges() {
        assert_eq!(exp64(0.0), 1.0);
        assert_eq!(exp64(-0.0), 1.0);
        assert_eq!(exp64(f64::NEG_INFINITY), 0.0);
        assert_eq!(exp64(f64::MIN), 0.0);
        assert_eq!(exp64(-745.2), 0.0, "below half of the smallest subnormal");
        assert_eq!(exp64(-745.13), f64::from_bits(1));
        assert_eq!(exp64(1000.0), f64::INFINITY);
        assert!(exp64(f64::NAN).is_nan());
        assert_eq!(exp64(-f64::from_bits(1)), 1.0);
    }

    #[test]
    fn exp_never_falls_where_its_argument_rises() {
        let mut previous = 0.0;
        for step in -760_000..=0 {
            let value = exp64(f64::from(step) / 1000.0);
            assert!(value >= previous, "at {step}/1000");
            previous = value;
        }
    }

    #[test]
    fn ln_at_the_edges() {
        assert_eq!(ln64(1.0).to_bits(), 0.0f64.to_bits());
        assert_eq!(ln64(0.0), f64::NEG_INFINITY);
        assert_eq!(ln64(f64::INFINITY), f64::INFINITY);
        assert!(ln64(-1.0).is_nan() && ln64(f64::NAN).is_nan());
    }
}
