//! The sum by definition, with FP64 arithmetic of its own: formats by their parameters, rounding by
//! the spacing of values, the tree by recursion.

use crate::tensor::DType;

/// A binary floating-point format.
#[derive(Clone, Copy, Debug)]
pub(super) struct Format {
    mantissa_bits: i32,
    least_exponent: i32,
    largest: f64,
    /// What lies beyond the largest value becomes infinite, or else the largest value.
    infinite: bool,
}

impl Format {
    /// The format of an element type that ranks add.
    pub(super) fn of(dtype: DType) -> Option<Format> {
        let format = |mantissa_bits, least_exponent, largest, infinite| {
            Some(Format { mantissa_bits, least_exponent, largest, infinite })
        };
        match dtype {
            DType::F32 => format(23, -126, f64::from(f32::MAX), true),
            DType::F16 => format(10, -14, 65504.0, true),
            DType::BF16 => format(7, -126, 255.0 * 2f64.powi(120), true),
            DType::F8_E4M3 => format(3, -6, 448.0, false),
            DType::F8_E5M2 => format(2, -14, 57344.0, false),
            _ => None,
        }
    }

    /// The nearest value of the format, ties to even.
    pub(super) fn round(self, x: f64) -> f64 {
        if x == 0.0 || !x.is_finite() {
            return if x.is_infinite() { self.beyond(x) } else { x };
        }
        let mut exponent = self.least_exponent;
        while x.abs() >= 2f64.powi(exponent + 1) && exponent < 200 {
            exponent += 1;
        }
        let unit = 2f64.powi(exponent - self.mantissa_bits);
        let rounded = (x / unit).round_ties_even() * unit;
        if rounded.abs() > self.largest { self.beyond(x) } else { rounded }
    }

    fn beyond(self, x: f64) -> f64 {
        if self.infinite { f64::INFINITY.copysign(x) } else { self.largest.copysign(x) }
    }
}

/// The sum of values of one element: widened to FP32, added as a tree in FP32, rounded once.
pub(super) fn sum(values: &[f64], format: Format) -> f64 {
    let padded = values.len().next_power_of_two();
    format.round(subtree(values, 0, padded).unwrap_or(0.0))
}

/// FP32 sum of leaves `start .. start + size`; `None` where there are none. The FP64 sum of two FP32
/// numbers, rounded to FP32, is their FP32 sum: 53 bits are more than twice 24.
fn subtree(values: &[f64], start: usize, size: usize) -> Option<f64> {
    if size == 1 {
        return values.get(start).copied();
    }
    let half = size / 2;
    match (subtree(values, start, half), subtree(values, start + half, half)) {
        (Some(left), Some(right)) => Some(f64::from((left + right) as f32)),
        (left, right) => left.or(right),
    }
}
