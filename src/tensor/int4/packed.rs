//! A packed matrix in memory.

use super::{Int4Error, Int4Shape, dequantise_row, quantise_row};
use crate::tensor::{Shared, Storage, Weight, bf16_from_bits};
use crate::units::mutant;
use rayon::prelude::*;

/// Codes and scales of one logical weight, in the layout of the format, and what prefill reads
/// instead of them, if anything.
#[derive(Clone, Debug)]
pub struct Int4 {
    pub shape: Int4Shape,
    /// `[N, K / 2]`.
    pub codes: Shared<u8>,
    /// `[N, K / group]`, BF16 bits.
    pub scales: Shared<u16>,
    /// The weight before quantisation, where prefill stays as it was.
    pub prefill: Option<Box<Weight>>,
}

/// How a weight is to be packed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Int4Plan {
    /// Values along K that share a scale; `None` takes the widest group that divides K.
    pub group: Option<usize>,
    /// Keep the weight before quantisation beside, for prefill.
    pub keep: bool,
}

impl Int4 {
    /// Packs a weight.
    ///
    /// # Errors
    /// The format does not take its extents or its values.
    pub fn of(weight: &Weight, plan: Int4Plan) -> Result<Int4, Int4Error> {
        let (rows, cols) = (weight.rows, weight.cols);
        let shape = match plan.group {
            Some(group) => Int4Shape::new(rows, cols, group)?,
            None => Int4Shape::widest(rows, cols)?,
        };
        let mut codes = vec![0u8; shape.code_bytes()];
        let mut scales = vec![0u16; shape.scale_count()];
        codes
            .par_chunks_exact_mut(shape.row_bytes())
            .zip(scales.par_chunks_exact_mut(shape.groups_per_row()))
            .enumerate()
            .try_for_each_init(Vec::new, |values, (row, (codes, scales))| {
                weight.row_f32(row, values);
                quantise_row(values, shape.group(), codes, scales).map_err(|e| e.in_rows_from(row))
            })?;
        Ok(Int4 {
            shape,
            codes: Shared::owned(codes),
            scales: Shared::owned(scales),
            prefill: plan.keep.then(|| Box::new(weight.clone())),
        })
    }

    /// Codes and scales of one row.
    pub fn row(&self, row: usize) -> (&[u8], &[u16]) {
        let (bytes, groups) = (self.shape.row_bytes(), self.shape.groups_per_row());
        (&self.codes[row * bytes..][..bytes], &self.scales[row * groups..][..groups])
    }

    /// Its rows in `count` equal parts, each a matrix of its own in the same memory; what prefill reads
    /// is left out.
    ///
    /// # Errors
    /// The rows do not divide into parts of whole tiles.
    pub fn row_parts(&self, count: usize) -> Result<Vec<Int4>, Int4Error> {
        let rows = self.shape.rows() / count.max(1);
        if rows * count != self.shape.rows() {
            return Err(Int4Error::Rows { rows });
        }
        let shape = Int4Shape::new(rows, self.shape.cols(), self.shape.group())?;
        let (codes, scales) = (shape.code_bytes(), shape.scale_count());
        let part = |i: usize| {
            let first = if mutant!("int4_scales_of_first_expert") { 0 } else { i };
            Int4 {
                shape,
                codes: self.codes.slice(i * codes..(i + 1) * codes),
                scales: self.scales.slice(first * scales..(first + 1) * scales),
                prefill: None,
            }
        };
        Ok((0..count).map(part).collect())
    }

    /// The values q · s of one row.
    pub fn dequantise_row(&self, row: usize, values: &mut Vec<f32>) {
        let (codes, scales) = self.row(row);
        values.resize(self.shape.cols(), 0.0);
        dequantise_row(codes, scales, self.shape.group(), values);
    }

    /// Bytes of codes and scales.
    pub fn packed_bytes(&self) -> usize {
        self.codes.len() + self.scales.len() * 2
    }

    /// Bytes of everything, what prefill reads included.
    pub fn size_bytes(&self) -> usize {
        self.packed_bytes() + self.prefill.as_ref().map_or(0, |weight| weight.size_bytes())
    }
}

impl Weight {
    /// Gives back the memory of mapped elements: a later read fetches them from the file again.
    pub fn release(&self) {
        match &self.storage {
            Storage::Bf16(s) => s.release(),
            Storage::F32(s) => s.release(),
            Storage::Int4(packed) => {
                packed.codes.release();
                packed.scales.release();
            }
        }
    }

    /// One row widened to FP32, into `values`.
    pub fn row_f32(&self, row: usize, values: &mut Vec<f32>) {
        let range = row * self.cols..(row + 1) * self.cols;
        values.clear();
        match &self.storage {
            Storage::Bf16(s) => values.extend(s[range].iter().map(|b| bf16_from_bits(*b))),
            Storage::F32(s) => values.extend_from_slice(&s[range]),
            Storage::Int4(packed) => packed.dequantise_row(row, values),
        }
    }
}
