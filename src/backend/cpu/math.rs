//! Transcendentals of the kernels: our own, in a fixed sequence of single-precision operations,
//! so that every machine and instruction set gives the same bits.

const LOG2_E: f32 = std::f32::consts::LOG2_E;
/// ln 2 in two parts; the first has few enough bits that `n * LN2_HIGH` is exact.
const LN2_HIGH: f32 = 0.693_145_75;
const LN2_LOW: f32 = 1.428_606_8e-6;
/// Adding and subtracting 1.5·2²³ rounds to the nearest integer (ties to even).
const ROUND: f32 = 12_582_912.0;

/// eˣ.
///
/// # Numerics
/// Cody–Waite reduction to |r| ≤ ln2/2 and a degree-7 Taylor polynomial in Horner form; at most
/// 2 ulp from the exact value (tested). Subnormal results are kept; overflow is +∞; NaN stays NaN.
#[inline(always)]
pub(crate) fn exp(x: f32) -> f32 {
    // Clamping keeps the integer part in range; both ends already give 0 and infinity.
    let clamped = x.clamp(-104.0, 89.0);
    let shifted = clamped * LOG2_E + ROUND;
    let n = shifted - ROUND;
    let r = (clamped - n * LN2_HIGH) - n * LN2_LOW;
    let mut p = 1.0 / 5040.0;
    p = p * r + 1.0 / 720.0;
    p = p * r + 1.0 / 120.0;
    p = p * r + 1.0 / 24.0;
    p = p * r + 1.0 / 6.0;
    p = p * r + 0.5;
    p = p * r + 1.0;
    p = p * r + 1.0;
    // 2ⁿ in two factors, so that results below the normal range are rounded once.
    let n = (shifted.to_bits() as i32).wrapping_sub(ROUND.to_bits() as i32);
    let half = n >> 1;
    let y = p * pow2(half) * pow2(n.wrapping_sub(half));
    if x.is_nan() { x } else { y }
}

/// 2ⁿ for −126 ≤ n ≤ 127.
#[inline(always)]
fn pow2(n: i32) -> f32 {
    f32::from_bits((n.wrapping_add(127) << 23) as u32)
}

/// 1 / (1 + e⁻ˣ).
#[inline(always)]
pub(crate) fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + exp(-x))
}

/// x · sigmoid(x), as x / (1 + e⁻ˣ).
#[inline(always)]
pub(crate) fn silu(x: f32) -> f32 {
    x / (1.0 + exp(-x))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exp_is_within_two_ulp_of_double_precision() {
        let mut worst = 0.0f64;
        let mut x = -103.9f32;
        while x < 88.7 {
            let exact = f64::from(x).exp();
            let got = f64::from(exp(x));
            let ulp = if exact < f64::from(f32::MIN_POSITIVE) {
                f64::from(f32::from_bits(1))
            } else {
                let e = exact.log2().floor();
                (e - 23.0).exp2()
            };
            worst = worst.max((got - exact).abs() / ulp);
            x += 0.000_731;
        }
        assert!(worst <= 2.0, "worst error {worst} ulp");
    }

    #[test]
    fn exp_at_the_edges() {
        assert_eq!(exp(0.0), 1.0);
        assert_eq!(exp(f32::NEG_INFINITY), 0.0);
        assert_eq!(exp(-1e30), 0.0);
        assert_eq!(exp(f32::INFINITY), f32::INFINITY);
        assert!(exp(f32::NAN).is_nan());
        assert_eq!(silu(-1e30), 0.0);
        assert_eq!(sigmoid(200.0), 1.0);
    }
}
