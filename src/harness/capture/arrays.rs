//! Comparing the arrays of two captures.

use crate::tensor::{DType, Difference, bf16_from_bits};
use crate::weights::{Checkpoint, TensorEntry};
use std::collections::BTreeSet;

/// How one array of two captures compares.
#[derive(Clone, Debug, PartialEq)]
pub struct ArrayComparison {
    pub name: String,
    pub state: ArrayState,
}

/// What was found.
#[derive(Clone, Debug, PartialEq)]
pub enum ArrayState {
    /// Same type, shape and bits, every value finite.
    Equal {
        values: usize,
    },
    /// Same shape; some bits differ, or some values are not finite.
    Different {
        difference: Difference,
        /// The first row (index along the first axis) with a bit that differs or a value that is
        /// not finite.
        first_row: usize,
        /// Rows with such a value, and rows in all.
        rows: (usize, usize),
    },
    /// Same length; integers that differ, and the first index where they do.
    DifferentIds {
        first: usize,
        unequal: usize,
        values: usize,
    },
    /// Type or shape differ: `F32 [7, 512]` against `BF16 [7, 512]`.
    Mismatch {
        left: String,
        right: String,
    },
    /// Only the left or only the right capture has it.
    OnlyLeft,
    OnlyRight,
}

impl ArrayComparison {
    /// Whether the arrays are there on both sides and bitwise equal, all values finite.
    pub fn equal(&self) -> bool {
        matches!(self.state, ArrayState::Equal { .. })
    }

    /// Whether both sides have the array.
    pub fn shared(&self) -> bool {
        !matches!(self.state, ArrayState::OnlyLeft | ArrayState::OnlyRight)
    }
}

/// Compares every array that either side has, by name.
pub(super) fn compare_arrays(left: &Checkpoint, right: &Checkpoint) -> Vec<ArrayComparison> {
    let names: BTreeSet<&str> =
        left.tensors().chain(right.tensors()).map(|(name, _)| name).collect();
    names
        .into_iter()
        .map(|name| ArrayComparison { name: name.to_owned(), state: state(left, right, name) })
        .collect()
}

fn state(left: &Checkpoint, right: &Checkpoint, name: &str) -> ArrayState {
    let (l, r) = match (left.tensor(name), right.tensor(name)) {
        (Some(l), Some(r)) => (l, r),
        (Some(_), None) => return ArrayState::OnlyLeft,
        (None, _) => return ArrayState::OnlyRight,
    };
    let bytes = |side: &Checkpoint| side.bytes(name).unwrap_or_default().to_vec();
    if l.dtype != r.dtype || l.shape != r.shape {
        return ArrayState::Mismatch { left: l.describe(), right: r.describe() };
    }
    let (a, b) = (bytes(left), bytes(right));
    match (floats(l, &a), floats(r, &b)) {
        (Some(a), Some(b)) => compare_floats(&a, &b, l.shape.first().copied().unwrap_or(1)),
        _ => compare_words(l, &a, &b),
    }
}

fn compare_floats(a: &[f32], b: &[f32], rows: usize) -> ArrayState {
    let Ok(difference) = Difference::between(a, b) else {
        return ArrayState::Mismatch { left: a.len().to_string(), right: b.len().to_string() };
    };
    if difference.is_bitwise() {
        return ArrayState::Equal { values: a.len() };
    }
    let width = (a.len() / rows.max(1)).max(1);
    let unequal = |(a, b): (&f32, &f32)| a.to_bits() != b.to_bits() || !a.is_finite();
    let differing: Vec<usize> = a
        .chunks(width)
        .zip(b.chunks(width))
        .enumerate()
        .filter(|(_, (a, b))| a.iter().zip(*b).any(unequal))
        .map(|(row, _)| row)
        .collect();
    let first_row = differing.first().copied().unwrap_or(0);
    ArrayState::Different { difference, first_row, rows: (differing.len(), rows) }
}

/// Types that are not read as numbers here: compared element by element as bytes.
fn compare_words(entry: &TensorEntry, a: &[u8], b: &[u8]) -> ArrayState {
    let size = entry.dtype.size_bytes();
    let pairs = || a.chunks(size).zip(b.chunks(size));
    match pairs().position(|(a, b)| a != b) {
        None if a.is_empty() => {
            ArrayState::Mismatch { left: "empty".into(), right: "empty".into() }
        }
        None => ArrayState::Equal { values: a.len() / size },
        Some(first) => ArrayState::DifferentIds {
            first,
            unequal: pairs().filter(|(a, b)| a != b).count(),
            values: a.len() / size,
        },
    }
}

fn floats(entry: &TensorEntry, bytes: &[u8]) -> Option<Vec<f32>> {
    match entry.dtype {
        DType::F32 => Some(
            bytes.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect(),
        ),
        DType::BF16 => Some(
            bytes
                .chunks_exact(2)
                .map(|b| bf16_from_bits(u16::from_le_bytes([b[0], b[1]])))
                .collect(),
        ),
        _ => None,
    }
}
