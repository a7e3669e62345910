//! Parts of a weight: row ranges are views of the same memory, anything else is gathered once.

use super::{Element, INT4_TILE_ROWS, Int4, Int4Error, Int4Shape, Shared, Storage, Weight};
use crate::units::mutant;
use std::ops::Range;

/// A packed weight cannot be divided so.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum PartError {
    #[error(
        "columns {}..{} cut a group of {group} packed values, which share a scale; pack in narrower \
         groups, or divide among fewer ranks",
        columns.start, columns.end
    )]
    Group { columns: Range<usize>, group: usize },
    #[error(
        "{rows} rows are no whole tiles of {INT4_TILE_ROWS}; divide among fewer ranks, or leave the role \
         unpacked"
    )]
    Rows { rows: usize },
    #[error("a part of a packed weight: {0}")]
    Shape(#[from] Int4Error),
}

impl Weight {
    /// The part with these rows and columns, in this order.
    ///
    /// # Shapes
    /// `rows.len() × columns.len()` summed over the ranges. One range of whole rows shares the memory
    /// of the weight; other parts are copied, so that every row is contiguous. A packed weight brings
    /// the scales of its rows and groups along, and the part of what prefill reads.
    ///
    /// # Errors
    /// The weight is packed, and columns cut a group or rows a tile.
    ///
    /// # Panics
    /// A range lies outside the weight.
    pub fn part(
        &self,
        rows: &[Range<usize>],
        columns: &[Range<usize>],
    ) -> Result<Weight, PartError> {
        let storage = match &self.storage {
            Storage::Bf16(s) => Storage::Bf16(gather(s, self.cols, rows, columns)),
            Storage::F32(s) => Storage::F32(gather(s, self.cols, rows, columns)),
            Storage::Int4(packed) => Storage::Int4(packed_part(packed, rows, columns)?),
        };
        Ok(Weight { rows: extent(rows), cols: extent(columns), storage })
    }
}

impl Int4Shape {
    /// The extents of the part with these rows and columns.
    ///
    /// # Errors
    /// Columns cut a group, or the rows are not whole tiles.
    pub fn part(
        &self,
        rows: &[Range<usize>],
        columns: &[Range<usize>],
    ) -> Result<Int4Shape, PartError> {
        let group = self.group();
        let whole = |at: usize| at.is_multiple_of(group);
        if let Some(cut) = columns.iter().find(|r| !whole(r.start) || !whole(r.end)) {
            return Err(PartError::Group { columns: cut.clone(), group });
        }
        let rows = extent(rows);
        if !rows.is_multiple_of(INT4_TILE_ROWS) {
            return Err(PartError::Rows { rows });
        }
        Ok(Int4Shape::new(rows, extent(columns), group)?)
    }
}

fn packed_part(
    whole: &Int4,
    rows: &[Range<usize>],
    columns: &[Range<usize>],
) -> Result<Int4, PartError> {
    let shape = whole.shape.part(rows, columns)?;
    let group = shape.group();
    let per = |unit: usize| -> Vec<Range<usize>> {
        columns.iter().map(|r| r.start / unit..r.end / unit).collect()
    };
    let mut groups = per(group);
    if mutant!("int4_part_first_scales") {
        groups = std::iter::once(0..extent(&groups)).collect();
    }
    let prefill = whole.prefill.as_ref().map(|wide| wide.part(rows, columns)).transpose()?;
    Ok(Int4 {
        shape,
        codes: gather(&whole.codes, whole.shape.row_bytes(), rows, &per(2)),
        scales: gather(&whole.scales, whole.shape.groups_per_row(), rows, &groups),
        prefill: prefill.map(Box::new),
    })
}

fn extent(ranges: &[Range<usize>]) -> usize {
    ranges.iter().map(Range::len).sum()
}

fn gather<T: Element>(
    all: &Shared<T>,
    width: usize,
    rows: &[Range<usize>],
    columns: &[Range<usize>],
) -> Shared<T> {
    if let ([rows], [columns]) = (rows, columns)
        && *columns == (0..width)
    {
        return all.slice(rows.start * width..rows.end * width);
    }
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
    use crate::tensor::Int4Plan;
    use std::slice::from_ref;

    #[test]
    fn parts_have_the_rows_and_columns_asked_for() {
        let elements: Vec<f32> = (0..24).map(|i| i as f32).collect();
        let weight = Weight { rows: 6, cols: 4, storage: Storage::F32(Shared::owned(elements)) };
        let (whole, middle, second) = (0..4, 2..4, 1..2);
        let columns = from_ref(&whole);
        let view = weight.part(from_ref(&middle), columns).unwrap();
        assert_eq!((view.rows, view.cols), (2, 4));
        assert_eq!(view.to_f32(), [8., 9., 10., 11., 12., 13., 14., 15.]);
        let (Storage::F32(part), Storage::F32(all)) = (&view.storage, &weight.storage) else {
            panic!()
        };
        assert_eq!(part.as_ptr(), all[8..].as_ptr(), "shared memory");
        assert_eq!(view.part(from_ref(&second), columns).unwrap().to_f32(), [12., 13., 14., 15.]);
        let some = weight.part(&[0..1, 5..6], &[1..2, 3..4]).unwrap();
        assert_eq!((some.rows, some.cols), (2, 2));
        assert_eq!(some.to_f32(), [1., 3., 21., 23.]);
    }

    /// Parts of packed weights have the values of the whole, and what prefill reads.
    #[test]
    fn packed_parts_bring_their_scales() {
        let elements = (0..24 * 128).map(|i| ((i * 37) % 101) as f32 * 0.03 - 1.5).collect();
        let wide = Weight { rows: 24, cols: 128, storage: Storage::F32(Shared::owned(elements)) };
        let pack = |keep: bool| {
            let packed = Int4::of(&wide, Int4Plan { group: Some(32), keep }).unwrap();
            Weight { storage: Storage::Int4(packed), ..wide.clone() }
        };
        let whole = pack(true);
        let (rows, columns) = ([0..8, 16..24], [32..64, 96..128]);
        let part = whole.part(&rows, &columns).unwrap();
        let plain =
            Weight { storage: Storage::F32(Shared::owned(whole.to_f32())), ..whole.clone() };
        assert_eq!(part.to_f32(), plain.part(&rows, &columns).unwrap().to_f32());
        let Storage::Int4(packed) = &part.storage else { panic!("{part:?}") };
        let prefill = packed.prefill.as_ref().unwrap();
        assert_eq!(prefill.to_f32(), wide.part(&rows, &columns).unwrap().to_f32());
        let inside = 16..64;
        let refused = pack(false).part(&rows, from_ref(&inside)).unwrap_err();
        assert_eq!(refused, PartError::Group { columns: 16..64, group: 32 });
        assert!(refused.to_string().starts_with("columns 16..64 cut a group of 32 packed values"));
        let rows = pack(false).part(&[0..4, 8..12, 16..20], &columns).unwrap_err();
        assert_eq!(rows, PartError::Rows { rows: 12 });
    }
}
