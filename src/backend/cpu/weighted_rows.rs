//! out = Σ_i coefficient_i · row_i, i ascending: the sum over keys or group rows that attention and
//! the gated delta net share.

use super::lanes::Widen;

/// `out[c] += Σ_i coefficients[i] · rows[i·width + c]`, i ascending, multiply and add separate.
///
/// `rows` has `width` columns; `out` has `width` values and holds the start of the sum.
#[inline(always)]
pub(super) fn add_weighted_rows<E: Widen>(coefficients: &[f32], rows: &[E], out: &mut [f32]) {
    let width = out.len();
    let mut column = 0;
    while column + 32 <= width {
        columns::<E, 32>(coefficients, rows, width, column, out);
        column += 32;
    }
    while column + 8 <= width {
        columns::<E, 8>(coefficients, rows, width, column, out);
        column += 8;
    }
    while column < width {
        columns::<E, 1>(coefficients, rows, width, column, out);
        column += 1;
    }
}

#[inline(always)]
fn columns<E: Widen, const N: usize>(
    coefficients: &[f32],
    rows: &[E],
    width: usize,
    column: usize,
    out: &mut [f32],
) {
    let out: &mut [f32; N] = (&mut out[column..column + N]).try_into().expect("N columns");
    let mut acc = *out;
    for (row, c) in rows.chunks_exact(width).zip(coefficients) {
        let row: &[E; N] = row[column..column + N].try_into().expect("N columns");
        for j in 0..N {
            acc[j] += c * row[j].widen();
        }
    }
    *out = acc;
}
