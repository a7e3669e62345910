//! Which matrices the format takes, and how large their parts are.

use super::Int4Error;

/// The format's name in manifests and sidecars.
pub const INT4_FORMAT: &str = "int4_symmetric_group_bf16_scale";
/// Raised whenever a bit of a stored code or scale changes its meaning.
pub const INT4_VERSION: u32 = 1;
/// Values along K that may share a scale.
pub const INT4_GROUPS: [usize; 3] = [32, 64, 128];
/// N is a multiple of this, so that kernels see whole tiles of rows.
pub const INT4_TILE_ROWS: usize = 8;

/// The extents of a packed matrix; a value exists only for extents that the format takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Int4Shape {
    rows: usize,
    cols: usize,
    group: usize,
}

impl Int4Shape {
    /// A matrix `[rows, cols]` in groups of `group` along its columns.
    ///
    /// # Errors
    /// The group is not 32, 64 or 128, does not divide `cols`, or `rows` is not a multiple of 8;
    /// a matrix without elements; a size that does not fit into 63 bits.
    pub fn new(rows: usize, cols: usize, group: usize) -> Result<Int4Shape, Int4Error> {
        if !INT4_GROUPS.contains(&group) {
            return Err(Int4Error::Group { group });
        }
        if cols == 0 || !cols.is_multiple_of(group) {
            return Err(Int4Error::Columns { cols, group });
        }
        if rows == 0 || !rows.is_multiple_of(INT4_TILE_ROWS) {
            return Err(Int4Error::Rows { rows });
        }
        match rows.checked_mul(cols) {
            Some(values) if values < 1 << 62 => Ok(Int4Shape { rows, cols, group }),
            _ => Err(Int4Error::Overflow { rows, cols }),
        }
    }

    /// As [`Int4Shape::new`] in the widest group that divides `cols`.
    ///
    /// # Errors
    /// As [`Int4Shape::new`].
    pub fn widest(rows: usize, cols: usize) -> Result<Int4Shape, Int4Error> {
        Int4Shape::new(rows, cols, widest_group(cols).unwrap_or(INT4_GROUPS[0]))
    }

    pub fn rows(&self) -> usize {
        self.rows
    }

    pub fn cols(&self) -> usize {
        self.cols
    }

    /// Values along a row that share a scale.
    pub fn group(&self) -> usize {
        self.group
    }

    /// Scales of one row.
    pub fn groups_per_row(&self) -> usize {
        self.cols / self.group
    }

    /// Bytes of one row's codes.
    pub fn row_bytes(&self) -> usize {
        self.cols / 2
    }

    /// Bytes of all codes.
    pub fn code_bytes(&self) -> usize {
        self.rows * self.row_bytes()
    }

    /// Scales of the whole matrix.
    pub fn scale_count(&self) -> usize {
        self.rows * self.groups_per_row()
    }
}

/// The widest group that divides `cols`.
pub fn widest_group(cols: usize) -> Option<usize> {
    INT4_GROUPS.into_iter().rev().find(|group| cols > 0 && cols.is_multiple_of(*group))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_widest_group_that_divides_k_is_taken() {
        assert_eq!(
            [576, 1536, 96, 100, 0].map(widest_group),
            [Some(64), Some(128), Some(32), None, None]
        );
        let shape = Int4Shape::widest(24, 576).unwrap();
        assert_eq!((shape.group(), shape.code_bytes(), shape.scale_count()), (64, 24 * 288, 216));
    }

    #[test]
    fn extents_that_do_not_fit_are_refused() {
        let refused = |r, c, g| Int4Shape::new(r, c, g).unwrap_err();
        assert_eq!(refused(8, 128, 16), Int4Error::Group { group: 16 });
        assert_eq!(refused(8, 96, 64), Int4Error::Columns { cols: 96, group: 64 });
        assert_eq!(refused(8, 0, 32), Int4Error::Columns { cols: 0, group: 32 });
        assert_eq!(refused(12, 64, 64), Int4Error::Rows { rows: 12 });
        assert_eq!(refused(0, 64, 64), Int4Error::Rows { rows: 0 });
        let (rows, cols) = (1 << 40, 1 << 30);
        assert_eq!(refused(rows, cols, 64), Int4Error::Overflow { rows, cols });
    }
}
