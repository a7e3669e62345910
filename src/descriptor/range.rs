//! Reals that arithmetic in FP32 can use.

/// What a real outside the range is refused with.
pub(super) const FP32_RANGE: &str = "a number that FP32 holds, 1.2e-38 to 3.4e38";

/// Whether FP32 holds the size of a positive real: others would become 0, infinity or lose digits.
pub(super) fn fits_fp32(real: f64) -> bool {
    (real as f32).is_normal()
}
