//! Parts of a packed weight, for ranks that hold some of its rows or columns.

use super::{Int4, Int4Error, Int4Shape};
use crate::tensor::{Element, Shared, Storage, Weight};
use std::ops::Range;

impl Int4 {
    /// The part with these rows and columns, in this order, with the scales that it has in the whole.
    ///
    /// # Errors
    /// A column range that begins or ends inside a group, or rows that are no whole tiles of 8.
    ///
    /// # Panics
    /// A range lies outside the weight.
    pub fn part(&self, rows: &[Range<usize>], columns: &[Range<usize>]) -> Result<Int4, Int4Error> {
        let group = self.shape.group();
        for column in columns.iter().flat_map(|range| [range.start, range.end]) {
            if !column.is_multiple_of(group) {
                return Err(Int4Error::Cut { column, group });
            }
        }
        let extent = |ranges: &[Range<usize>]| ranges.iter().map(Range::len).sum();
        let shape = Int4Shape::new(extent(rows), extent(columns), group)?;
        let scaled = |by: usize| -> Vec<Range<usize>> {
            columns.iter().map(|range| range.start / by..range.end / by).collect()
        };
        let (bytes, groups) = (self.shape.row_bytes(), self.shape.groups_per_row());
        let prefill = self.prefill.as_ref().map(|weight| {
            let storage = match &weight.storage {
                Storage::Bf16(s) => Storage::Bf16(gather(s, weight.cols, rows, columns)),
                Storage::F32(s) => Storage::F32(gather(s, weight.cols, rows, columns)),
                Storage::Int4(_) => unreachable!("what prefill reads is not packed"),
            };
            Box::new(Weight { rows: shape.rows(), cols: shape.cols(), storage })
        });
        Ok(Int4 {
            shape,
            codes: gather(&self.codes, bytes, rows, &scaled(2)),
            scales: gather(&self.scales, groups, rows, &scaled(group)),
            prefill,
        })
    }
}

fn gather<T: Element>(
    all: &[T],
    width: usize,
    rows: &[Range<usize>],
    columns: &[Range<usize>],
) -> Shared<T> {
    let mut elements = Vec::new();
    for row in rows.iter().cloned().flatten() {
        let row = &all[row * width..][..width];
        columns.iter().for_each(|range| elements.extend_from_slice(&row[range.clone()]));
    }
    Shared::owned(elements)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tensor::{Int4Plan, bf16_bits};

    fn weight() -> Weight {
        let bits = (0..24 * 128).map(|i| bf16_bits(((i * 31 % 97) as f32 - 48.0) * 0.01));
        let storage = Storage::Bf16(Shared::owned(bits.collect()));
        Weight { rows: 24, cols: 128, storage }
    }

    #[test]
    fn a_part_has_the_values_of_the_whole() {
        let weight = weight();
        let packed = Int4::of(&weight, Int4Plan { group: Some(32), keep: true }).unwrap();
        let (rows, columns) = ([8..16, 0..8], [96..128, 0..32]);
        let part = packed.part(&rows, &columns).unwrap();
        assert_eq!((part.shape.rows(), part.shape.cols(), part.shape.group()), (16, 64, 32));
        let (mut whole, mut found) = (Vec::new(), Vec::new());
        for (i, row) in rows.iter().cloned().flatten().enumerate() {
            packed.dequantise_row(row, &mut whole);
            part.dequantise_row(i, &mut found);
            assert_eq!(found, [&whole[96..128], &whole[..32]].concat(), "row {row}");
        }
        let wide = part.prefill.unwrap().to_f32();
        assert_eq!(wide[..32], weight.to_f32()[8 * 128 + 96..9 * 128]);
    }

    #[test]
    fn cuts_inside_a_group_or_a_tile_are_refused() {
        let packed = Int4::of(&weight(), Int4Plan { group: None, keep: false }).unwrap();
        let all = std::slice::from_ref(&(0..24));
        let cut = packed.part(all, std::slice::from_ref(&(0..64))).unwrap_err();
        assert_eq!(cut, Int4Error::Cut { column: 64, group: 128 });
        let tile = packed.part(std::slice::from_ref(&(0..12)), std::slice::from_ref(&(0..128)));
        assert_eq!(tile.unwrap_err(), Int4Error::Rows { rows: 12 });
    }
}
