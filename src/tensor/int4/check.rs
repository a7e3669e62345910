//! Codes and scales from a file are untrusted: they are checked before a kernel reads them.

use super::{Int4Error, Int4Shape};
use crate::units::mutant;
use rayon::prelude::*;

const ROWS_PER_TASK: usize = 64;

/// Requires codes of a matrix to be those of the format.
///
/// # Errors
/// Another number of bytes, or the place of the first code −8.
pub fn check_codes(codes: &[u8], shape: Int4Shape) -> Result<(), Int4Error> {
    let expected = shape.code_bytes();
    if codes.len() != expected {
        return Err(Int4Error::Length { what: "bytes of codes", expected, found: codes.len() });
    }
    if mutant!("int4_code_unchecked") {
        return Ok(());
    }
    let row_bytes = shape.row_bytes();
    let bad = codes.par_chunks(row_bytes * ROWS_PER_TASK).position_first(has_least);
    let Some(task) = bad else { return Ok(()) };
    let start = task * row_bytes * ROWS_PER_TASK;
    let at = start + codes[start..].iter().position(|b| is_least(*b)).unwrap_or_default();
    let high = u8::from(codes[at] & 0x0f != 8);
    let column = at % row_bytes * 2 + usize::from(high);
    Err(Int4Error::Code { row: at / row_bytes, column })
}

fn is_least(byte: u8) -> bool {
    byte & 0x0f == 0x08 || byte & 0xf0 == 0x80
}

/// Without an early exit, so that it is vectorised.
fn has_least(codes: &[u8]) -> bool {
    codes.iter().fold(false, |bad, byte| bad | is_least(*byte))
}

/// Requires scales of a matrix to be those of the format.
///
/// # Errors
/// Another number of scales, or the place of the first one that is not positive, finite and normal.
pub fn check_scales(scales: &[u16], shape: Int4Shape) -> Result<(), Int4Error> {
    let expected = shape.scale_count();
    if scales.len() != expected {
        return Err(Int4Error::Length { what: "scales", expected, found: scales.len() });
    }
    let per_row = shape.groups_per_row();
    match scales.iter().position(|bits| !(0x0080..0x7f80).contains(bits)) {
        None => Ok(()),
        Some(at) => {
            Err(Int4Error::Scale { row: at / per_row, group: at % per_row, bits: scales[at] })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_code_below_minus_seven_is_found_in_either_nibble() {
        let shape = Int4Shape::new(136, 64, 32).unwrap();
        let mut codes = vec![0x97; shape.code_bytes()];
        assert_eq!(check_codes(&codes, shape), Ok(()));
        codes[130 * 32 + 5] = 0x81;
        assert_eq!(check_codes(&codes, shape), Err(Int4Error::Code { row: 130, column: 11 }));
        codes[3] = 0x18;
        assert_eq!(check_codes(&codes, shape), Err(Int4Error::Code { row: 0, column: 6 }));
        let short = check_codes(&codes[1..], shape).unwrap_err();
        assert!(matches!(short, Int4Error::Length { .. }));
    }

    #[test]
    fn scales_are_positive_finite_and_normal() {
        let shape = Int4Shape::new(8, 64, 32).unwrap();
        let mut scales = vec![0x3f80; 16];
        assert_eq!(check_scales(&scales, shape), Ok(()));
        for bits in [0x0000, 0x8000, 0x007f, 0xbf80, 0x7f80, 0x7fc0, 0xff80] {
            scales[9] = bits;
            assert_eq!(
                check_scales(&scales, shape),
                Err(Int4Error::Scale { row: 4, group: 1, bits })
            );
        }
    }
}
