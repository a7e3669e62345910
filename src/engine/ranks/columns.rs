//! Slices of buffers in other units.

use crate::placement::AxisSlice;

/// The same slice counted in units of `unit` elements (a head of `unit` dimensions).
///
/// # Errors
/// A range that cuts a unit.
pub(super) fn in_units(slice: &AxisSlice, unit: usize) -> Result<AxisSlice, String> {
    let whole = |n: usize| n.is_multiple_of(unit);
    let ranges = slice.ranges.iter();
    if unit == 0 || !whole(slice.of) || !ranges.clone().all(|r| whole(r.start) && whole(r.end)) {
        return Err(format!("{:?} of {} cuts a head of {unit}", slice.ranges, slice.of));
    }
    Ok(AxisSlice {
        ranges: ranges.map(|r| r.start / unit..r.end / unit).collect(),
        of: slice.of / unit,
    })
}

/// The part of a slice that lies in `start .. start + of`, counted from there.
pub(super) fn within(slice: &AxisSlice, start: usize, of: usize) -> AxisSlice {
    let end = start + of;
    let ranges = slice.ranges.iter().map(|r| r.start.max(start)..r.end.min(end));
    let ranges = ranges.filter(|r| r.start < r.end).map(|r| r.start - start..r.end - start);
    AxisSlice { ranges: ranges.collect(), of }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_change_units() {
        let slice = AxisSlice { ranges: vec![4..8, 12..16], of: 16 };
        assert_eq!(in_units(&slice, 4).unwrap().ranges, [1..2, 3..4]);
        assert_eq!(in_units(&slice, 4).unwrap().of_units(4), slice);
        assert!(in_units(&slice, 3).is_err() && in_units(&slice, 8).is_err());
        let part = within(&slice, 6, 8);
        assert_eq!((part.ranges, part.of), (vec![0..2, 6..8], 8));
    }
}
