//! From values to codes and scales, and back.

use super::{Int4Error, Int4Shape};
use crate::tensor::{bf16_bits, bf16_from_bits};
use crate::units::mutant;

/// The largest code.
const LARGEST: f32 = 7.0;
/// Adding and subtracting 1.5 · 2²³ rounds a small FP32 number to the nearest integer, ties to even.
const ROUND: f32 = 12_582_912.0;
/// BF16's least normal number.
const LEAST_NORMAL: f32 = f32::MIN_POSITIVE;

/// Codes and scales of a matrix.
///
/// # Shapes
/// `values` is `[N, K]` row-major; codes are `[N, K / 2]` bytes, scales `[N, K / group]` BF16.
///
/// # Numerics
/// FP32 division, each result rounded once; see the module's documentation.
///
/// # Errors
/// `values` has another length, a value is not finite, or a group's scale cannot be represented.
pub fn quantise(values: &[f32], shape: Int4Shape) -> Result<(Vec<u8>, Vec<u16>), Int4Error> {
    let expected = shape.rows() * shape.cols();
    if values.len() != expected {
        return Err(Int4Error::Length { what: "values", expected, found: values.len() });
    }
    let mut codes = vec![0; shape.code_bytes()];
    let mut scales = vec![0; shape.scale_count()];
    let rows = values
        .chunks_exact(shape.cols())
        .zip(codes.chunks_exact_mut(shape.row_bytes()))
        .zip(scales.chunks_exact_mut(shape.groups_per_row()));
    for (row, ((values, codes), scales)) in rows.enumerate() {
        quantise_row(values, shape.group(), codes, scales).map_err(|e| e.in_rows_from(row))?;
    }
    Ok((codes, scales))
}

/// Codes and scales of one row.
///
/// # Shapes
/// `values` is K long, a multiple of `group`; `codes` K / 2 bytes, `scales` K / `group`.
///
/// # Errors
/// As [`quantise`], with row 0.
pub fn quantise_row(
    values: &[f32],
    group: usize,
    codes: &mut [u8],
    scales: &mut [u16],
) -> Result<(), Int4Error> {
    let groups = values.chunks_exact(group).zip(codes.chunks_exact_mut(group / 2)).zip(scales);
    for (index, ((values, codes), scale)) in groups.enumerate() {
        if let Some(i) = values.iter().position(|v| !v.is_finite()) {
            let column = index * group + i;
            return Err(Int4Error::NonFinite { row: 0, column, value: values[i] });
        }
        let largest = values.iter().fold(0.0f32, |max, v| max.max(v.abs()));
        *scale = scale_of(largest).map_err(|too_large| match too_large {
            true => Int4Error::LargeScale { row: 0, group: index, largest },
            false => Int4Error::SubnormalScale { row: 0, group: index, largest },
        })?;
        let s = bf16_from_bits(*scale);
        for (pair, byte) in values.chunks_exact(2).zip(codes) {
            *byte = code(pair[0], s) | (code(pair[1], s) << 4);
        }
    }
    Ok(())
}

/// The scale of a group by its largest absolute value; `Err(true)` if it is too large, `Err(false)`
/// if too small.
fn scale_of(largest: f32) -> Result<u16, bool> {
    if largest == 0.0 {
        return Ok(bf16_bits(1.0));
    }
    let divisor = if mutant!("int4_scale_by_eight") { 8.0 } else { LARGEST };
    let bits = bf16_bits(largest / divisor);
    let scale = bf16_from_bits(bits);
    if scale < LEAST_NORMAL {
        return Err(false);
    }
    // What kernels that round to BF16 would read.
    match bf16_from_bits(bf16_bits(scale * LARGEST)).is_finite() {
        true => Ok(bits),
        false => Err(true),
    }
}

/// The nibble of a value.
#[inline(always)]
fn code(value: f32, scale: f32) -> u8 {
    let exact = value / scale;
    let rounded = match mutant!("int4_round_half_up") {
        true => (exact + 0.5).floor(),
        false => (exact + ROUND) - ROUND,
    };
    (rounded.clamp(-LARGEST, LARGEST) as i8 as u8) & 0x0f
}

/// The values q · s of one row, in FP32.
///
/// # Shapes
/// As [`quantise_row`].
///
/// # Numerics
/// Exact: 3 bits times 8 bits fit into FP32.
pub fn dequantise_row(codes: &[u8], scales: &[u16], group: usize, values: &mut [f32]) {
    let groups = values.chunks_exact_mut(group).zip(codes.chunks_exact(group / 2)).zip(scales);
    for ((values, codes), scale) in groups {
        let scale = bf16_from_bits(*scale);
        for (pair, byte) in values.chunks_exact_mut(2).zip(codes) {
            let (low, high) = match mutant!("int4_nibbles_swapped") {
                true => (*byte as i8 >> 4, (*byte as i8) << 4 >> 4),
                false => ((*byte as i8) << 4 >> 4, *byte as i8 >> 4),
            };
            pair[0] = f32::from(low) * scale;
            pair[1] = f32::from(high) * scale;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one_group(values: &[f32; 32]) -> Result<(Vec<u8>, Vec<u16>), Int4Error> {
        let mut all = vec![0.0; 8 * 32];
        all[..32].copy_from_slice(values);
        let (codes, scales) = quantise(&all, Int4Shape::new(8, 32, 32).unwrap())?;
        Ok((codes[..16].to_vec(), scales[..1].to_vec()))
    }

    fn group(first: &[f32]) -> [f32; 32] {
        std::array::from_fn(|i| first.get(i).copied().unwrap_or(0.0))
    }

    #[test]
    fn known_answers() {
        // s = BF16(7 / 7) = 1: ties go to the even code, −7 is the least.
        let (codes, scales) =
            one_group(&group(&[7.0, -7.0, 0.5, 1.5, 2.5, -0.5, -1.5, 3.0])).unwrap();
        assert_eq!(scales, [0x3f80]);
        assert_eq!(codes[..4], [0x97, 0x20, 0x02, 0x3e]);
        // All zero: s = 1.
        assert_eq!(one_group(&group(&[])).unwrap(), (vec![0; 16], vec![0x3f80]));
        // 1 / 7 = 0.142857 rounds to BF16 0x3e12 = 0.142578125; 1 / s = 7.01 is clipped.
        let (codes, scales) = one_group(&group(&[1.0, -0.07])).unwrap();
        assert_eq!((codes[0], scales[0]), (0x07, 0x3e12));
        assert_eq!(codes[0] >> 4, 0, "-0.07 / 0.1426 = -0.491 rounds to 0");
    }

    #[test]
    fn values_that_have_no_scale_are_refused() {
        let large = f32::from_bits(0x7f7f_ffff);
        assert!(matches!(one_group(&group(&[large])), Err(Int4Error::LargeScale { .. })));
        assert!(matches!(one_group(&group(&[1e-38])), Err(Int4Error::SubnormalScale { .. })));
        assert!(matches!(one_group(&group(&[1e-45])), Err(Int4Error::SubnormalScale { .. })));
        let nan = one_group(&group(&[1.0, f32::NAN])).unwrap_err();
        assert!(matches!(nan, Int4Error::NonFinite { row: 0, column: 1, .. }));
        let few = quantise(&[0.0; 9], Int4Shape::new(8, 32, 32).unwrap()).unwrap_err();
        assert_eq!(few, Int4Error::Length { what: "values", expected: 256, found: 9 });
    }

    #[test]
    fn quantising_what_was_dequantised_changes_nothing() {
        let shape = Int4Shape::new(8, 128, 64).unwrap();
        let mut state = 3u32;
        let values: Vec<f32> = (0..8 * 128)
            .map(|_| {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                crate::tensor::round_bf16((state >> 8) as f32 / 8_388_608.0 - 1.0)
            })
            .collect();
        let (codes, scales) = quantise(&values, shape).unwrap();
        let mut back = vec![f32::NAN; values.len()];
        for row in 0..8 {
            let (c, s) = (&codes[row * 64..][..64], &scales[row * 2..][..2]);
            dequantise_row(c, s, 64, &mut back[row * 128..][..128]);
        }
        assert_ne!(values, back);
        assert_eq!(quantise(&back, shape).unwrap(), (codes, scales));
    }
}
