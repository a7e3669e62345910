//! Why values cannot be packed, or packed ones not be used.

/// A refusal of the format.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub enum Int4Error {
    #[error("a group has 32, 64 or 128 values along K, not {group}")]
    Group { group: usize },
    #[error("K = {cols} is not a multiple of the group of {group}: partial groups do not exist")]
    Columns { cols: usize, group: usize },
    #[error("N = {rows} is not a multiple of the tile of 8 rows")]
    Rows { rows: usize },
    #[error("a matrix of {rows} x {cols} is larger than the format can address")]
    Overflow { rows: usize, cols: usize },
    #[error("{what}: expected {expected}, found {found}")]
    Length { what: &'static str, expected: usize, found: usize },
    #[error("row {row}, column {column}: {value} cannot be quantised: values must be finite")]
    NonFinite { row: usize, column: usize, value: f32 },
    #[error(
        "row {row}, group {group}: the scale of a largest value of {largest:e} is below BF16's \
             least normal number, 1.2e-38; keep this weight in BF16"
    )]
    SubnormalScale { row: usize, group: usize, largest: f32 },
    #[error("row {row}, group {group}: a largest value of {largest:e} comes back as infinity")]
    LargeScale { row: usize, group: usize, largest: f32 },
    #[error("row {row}, column {column}: the code -8, which the format does not have")]
    Code { row: usize, column: usize },
    #[error(
        "row {row}, group {group}: the scale 0x{bits:04x}; scales are positive, finite and \
             normal"
    )]
    Scale { row: usize, group: usize, bits: u16 },
}

impl Int4Error {
    /// The same refusal of a block of rows that starts at row `first`.
    pub fn in_rows_from(self, first: usize) -> Int4Error {
        let mut error = self;
        match &mut error {
            Int4Error::NonFinite { row, .. }
            | Int4Error::SubnormalScale { row, .. }
            | Int4Error::LargeScale { row, .. }
            | Int4Error::Code { row, .. }
            | Int4Error::Scale { row, .. } => *row += first,
            _ => {}
        }
        error
    }
}
