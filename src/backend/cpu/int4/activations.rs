//! Rows of X as sixteen-bit integers with one scale per group of K.

use super::super::isa::multiversion;
use super::super::rows::for_each_part;
use crate::backend::cpu::Isa;

/// The largest integer.
const LARGEST: f32 = 32767.0;
/// Groups whose largest value is below this count as zeros: their reciprocal would overflow.
const LEAST: f32 = 1e-30;
/// Adding 1.5 · 2²³ rounds to an integer, ties to even, and leaves it in the low bits.
const ROUND: f32 = 12_582_912.0;
/// The bits of infinity: an absolute value from here on is not finite.
const INFINITY_BITS: u32 = 0x7f80_0000;
/// What is added to codes in a panel.
const BIAS: i32 = 8;
/// Values that one thread converts without asking others.
const INLINE_VALUES: usize = 16 << 10;

/// Rows of X, converted.
///
/// # Numerics
/// a = max|x| / 32767 of a group in FP32, q = round-half-even(x · (32767 / max|x|)): |x − q·a| is at
/// most a / 2 and a rounding, 2⁻¹⁶ of the group's largest value, where BF16's own rounding of that
/// value is up to 2⁻⁹. A group with a value that is not finite has the scale NaN.
#[derive(Debug, Default)]
pub(super) struct Activations {
    cols: usize,
    groups: usize,
    values: Vec<i16>,
    /// −8 · Σ q of every group: takes the bias of the codes away.
    bias: Vec<i32>,
    scales: Vec<f32>,
}

/// One converted row.
#[derive(Clone, Copy, Debug)]
pub(super) struct Row<'a> {
    pub(super) values: &'a [i16],
    pub(super) bias: &'a [i32],
    pub(super) scales: &'a [f32],
}

impl Activations {
    /// Converts rows of `cols` values in groups of `group`.
    pub(super) fn of(isa: Isa, x: &[f32], cols: usize, group: usize) -> Activations {
        let groups = cols / group;
        let rows = x.len() / cols;
        let mut values = vec![0i16; rows * cols];
        let mut bias = vec![0i32; rows * groups];
        let mut scales = vec![0f32; rows * groups];
        if x.len() <= INLINE_VALUES {
            convert(isa, x, group, &mut values, &mut bias, &mut scales);
        } else {
            let parts = x
                .chunks_exact(cols)
                .zip(values.chunks_exact_mut(cols))
                .zip(bias.chunks_exact_mut(groups))
                .zip(scales.chunks_exact_mut(groups));
            let least = (INLINE_VALUES / 4 / cols).max(1);
            for_each_part(parts.collect(), least, |_, (((x, values), bias), scales)| {
                convert(isa, x, group, values, bias, scales);
            });
        }
        Activations { cols, groups, values, bias, scales }
    }

    /// A row.
    pub(super) fn row(&self, row: usize) -> Row<'_> {
        Row {
            values: &self.values[row * self.cols..][..self.cols],
            bias: &self.bias[row * self.groups..][..self.groups],
            scales: &self.scales[row * self.groups..][..self.groups],
        }
    }
}

multiversion! {
    fn convert = convert_body(
        x: &[f32], group: usize, values: &mut [i16], bias: &mut [i32], scales: &mut [f32],
    );
}

#[inline(always)]
fn convert_body(x: &[f32], group: usize, values: &mut [i16], bias: &mut [i32], scales: &mut [f32]) {
    let groups = x.chunks_exact(group).zip(values.chunks_exact_mut(group)).zip(bias).zip(scales);
    for (((x, values), bias), scale) in groups {
        let largest = x.iter().fold(0u32, |max, x| max.max(x.to_bits() & 0x7fff_ffff));
        if largest >= INFINITY_BITS {
            *scale = f32::NAN;
            continue;
        }
        let largest = f32::from_bits(largest);
        if largest < LEAST {
            continue;
        }
        *scale = largest / LARGEST;
        let reciprocal = LARGEST / largest;
        let mut sum = 0i32;
        for (x, value) in x.iter().zip(values.iter_mut()) {
            let rounded = (x * reciprocal + ROUND).to_bits().wrapping_sub(ROUND.to_bits()) as i32;
            *value = rounded as i16;
            sum += rounded;
        }
        *bias = -BIAS * sum;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_come_back_within_half_a_step_on_every_instruction_set() {
        let x: Vec<f32> = (0..256).map(|i| ((i * 37 % 101) as f32 - 50.0) * 0.013).collect();
        let portable = Activations::of(Isa::PORTABLE, &x, 128, 64);
        for isa in Isa::all() {
            let found = Activations::of(isa, &x, 128, 64);
            assert_eq!((&found.values, &found.bias), (&portable.values, &portable.bias));
            assert_eq!(found.scales, portable.scales);
        }
        for (i, x) in x.iter().enumerate() {
            let row = portable.row(i / 128);
            let (k, group) = (i % 128, i % 128 / 64);
            let back = f32::from(row.values[k]) * row.scales[group];
            assert!((x - back).abs() <= row.scales[group] * 0.501, "{x} {back}");
        }
        let sum: i32 = portable.row(1).values[64..].iter().map(|v| i32::from(*v)).sum();
        assert_eq!(portable.row(1).bias[1], -8 * sum);
        assert!(portable.values.contains(&32767) || portable.values.contains(&-32767));
    }

    #[test]
    fn zeros_tiny_values_and_values_that_are_not_finite() {
        let mut x = vec![0.0f32; 128];
        x[40] = 1e-38;
        x[70] = f32::NAN;
        x[100] = f32::NEG_INFINITY;
        let found = Activations::of(Isa::detect(), &x, 128, 32);
        assert_eq!(found.row(0).scales[..2], [0.0, 0.0]);
        assert!(found.row(0).scales[2].is_nan() && found.row(0).scales[3].is_nan());
    }
}
