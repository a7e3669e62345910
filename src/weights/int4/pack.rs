//! Packing one weight of a checkpoint, block by block.

use super::QuantiseError;
use super::convert::{ConvertError, io};
use super::output::Output;
use super::plan::Packing;
use super::sidecar::{ErrorRecord, ExpertRecord, PackedRecord, PartRecord, tensor_names};
use crate::tensor::{DType, Int4Error, bf16_from_bits, dequantise_row, quantise_row};
use crate::units::{Digest, Hasher};
use crate::weights::Checkpoint;
use crate::weights::resolve::Located;
use rayon::prelude::*;
use std::path::Path;

/// Rows that are packed at a time.
const BLOCK_ROWS: usize = 512;

/// Packs one weight block by block: codes go to the file at once, scales after them.
pub(super) fn pack(
    checkpoint: &Checkpoint,
    p: &Packing,
    out: &mut Output<'_>,
    path: &Path,
) -> Result<PackedRecord, ConvertError> {
    let shape = p.shape;
    let (mut codes_hash, mut scales) = (Hasher::new(), Vec::with_capacity(2 * shape.scale_count()));
    let mut error = ErrorSum::default();
    let mut experts: Vec<Expert> = (0..p.experts.unwrap_or(0)).map(|_| Expert::new()).collect();
    let expert_rows = shape.rows() / p.experts.unwrap_or(1);
    let mut first = 0;
    let mut codes = vec![0u8; BLOCK_ROWS * shape.row_bytes()];
    let mut block_scales = vec![0u16; BLOCK_ROWS * shape.groups_per_row()];
    let mut refused: Option<Int4Error> = None;
    let mut failed: Option<std::io::Error> = None;
    p.located.for_each_block(checkpoint, shape.cols(), BLOCK_ROWS, |values| {
        if refused.is_some() || failed.is_some() {
            return;
        }
        let rows = values.len() / shape.cols();
        let codes = &mut codes[..rows * shape.row_bytes()];
        let block_scales = &mut block_scales[..rows * shape.groups_per_row()];
        let sums = values
            .par_chunks_exact(shape.cols())
            .zip(codes.par_chunks_exact_mut(shape.row_bytes()))
            .zip(block_scales.par_chunks_exact_mut(shape.groups_per_row()))
            .enumerate()
            .map_init(Vec::new, |back, (row, ((values, codes), scales))| {
                quantise_row(values, shape.group(), codes, scales)
                    .map_err(|e| e.in_rows_from(first + row))?;
                back.resize(values.len(), 0.0);
                dequantise_row(codes, scales, shape.group(), back);
                Ok::<_, Int4Error>(ErrorSum::of(values, back))
            })
            .collect::<Result<Vec<ErrorSum>, Int4Error>>();
        let sums = match sums {
            Ok(sums) => sums,
            Err(e) => {
                refused = Some(e);
                return;
            }
        };
        codes_hash.update(codes);
        let block_start = scales.len();
        scales.extend(block_scales.iter().flat_map(|s| s.to_le_bytes()));
        // In row order, so that the sums do not depend on threads.
        for (row, sum) in sums.iter().enumerate() {
            error.add(sum);
            if let Some(expert) = experts.get_mut((first + row) / expert_rows) {
                let (code_bytes, scale_bytes) = (shape.row_bytes(), 2 * shape.groups_per_row());
                expert.codes.update(&codes[row * code_bytes..][..code_bytes]);
                expert.scales.update(&scales[block_start + row * scale_bytes..][..scale_bytes]);
                expert.error.add(sum);
            }
        }
        failed = out.write(codes).err();
        first += rows;
    });
    if let Some(error) = refused {
        return Err(QuantiseError::Weight { role: p.role, layer: p.layer, error }.into());
    }
    if let Some(error) = failed {
        return Err(io(path)(error));
    }
    out.write(&scales).map_err(io(path))?;
    let [codes_name, scales_name] = tensor_names(p.role, p.layer);
    let (code_bytes, scale_count) = (shape.code_bytes(), shape.scale_count());
    Ok(PackedRecord {
        group: shape.group(),
        codes: PartRecord {
            tensor: codes_name,
            dtype: DType::U8,
            count: code_bytes,
            bytes: code_bytes as u64,
            sha256: codes_hash.finish().to_string(),
        },
        scales: PartRecord {
            tensor: scales_name,
            dtype: DType::BF16,
            count: scale_count,
            bytes: 2 * scale_count as u64,
            sha256: Digest::of(&scales).to_string(),
        },
        error: error.record(),
        experts: experts.into_iter().map(Expert::record).collect(),
    })
}

/// What is recorded of one expert.
struct Expert {
    codes: Hasher,
    scales: Hasher,
    error: ErrorSum,
}

impl Expert {
    fn new() -> Expert {
        Expert { codes: Hasher::new(), scales: Hasher::new(), error: ErrorSum::default() }
    }

    fn record(self) -> ExpertRecord {
        ExpertRecord {
            codes: self.codes.finish().to_string(),
            scales: self.scales.finish().to_string(),
            error: self.error.record(),
        }
    }
}

/// Sums over differences, in FP64.
#[derive(Clone, Copy, Debug, Default)]
struct ErrorSum {
    count: f64,
    max_abs: f64,
    square: f64,
    square_of_values: f64,
}

impl ErrorSum {
    fn of(values: &[f32], back: &[f32]) -> ErrorSum {
        let mut sum = ErrorSum { count: values.len() as f64, ..ErrorSum::default() };
        for (value, back) in values.iter().zip(back) {
            let (value, back) = (f64::from(*value), f64::from(*back));
            sum.max_abs = sum.max_abs.max((value - back).abs());
            sum.square += (value - back) * (value - back);
            sum.square_of_values += value * value;
        }
        sum
    }

    fn add(&mut self, other: &ErrorSum) {
        self.count += other.count;
        self.max_abs = self.max_abs.max(other.max_abs);
        self.square += other.square;
        self.square_of_values += other.square_of_values;
    }

    fn record(&self) -> ErrorRecord {
        let share = self.square / self.square_of_values;
        ErrorRecord {
            max_abs: seven_digits(self.max_abs),
            rms: seven_digits((self.square / self.count.max(1.0)).sqrt()),
            relative_rms: seven_digits(if share.is_finite() { share.sqrt() } else { 0.0 }),
        }
    }
}

/// Rounded to seven significant digits, which survive being written and read as JSON.
fn seven_digits(value: f64) -> f64 {
    format!("{value:.6e}").parse().unwrap_or(value)
}

impl Located {
    /// Gives the weight's rows in order, widened to FP32, up to `rows` of `cols` values at a time.
    pub(super) fn for_each_block(
        &self,
        checkpoint: &Checkpoint,
        cols: usize,
        rows: usize,
        mut use_block: impl FnMut(&[f32]),
    ) {
        let element = self.dtype.size_bytes();
        let block_bytes = rows * cols * element;
        let mut values = Vec::with_capacity(rows * cols);
        for part in &self.parts {
            let stored = checkpoint.bytes(&part.tensor).unwrap_or_default();
            for block in stored[part.bytes.clone()].chunks(block_bytes) {
                // Parts may be short (interleaved rows): they are gathered into whole blocks.
                widen(self.dtype, block, &mut values);
                while values.len() >= rows * cols {
                    use_block(&values[..rows * cols]);
                    values.drain(..rows * cols);
                }
            }
            checkpoint.forget(&part.tensor);
        }
        if !values.is_empty() {
            use_block(&values);
        }
    }
}

fn widen(dtype: DType, bytes: &[u8], values: &mut Vec<f32>) {
    let halves = || bytes.as_chunks::<2>().0.iter();
    match dtype {
        DType::BF16 => values.extend(halves().map(|b| bf16_from_bits(u16::from_le_bytes(*b)))),
        DType::F16 => values.extend(halves().map(|b| half::f16::from_le_bytes(*b).to_f32())),
        _ => values.extend(bytes.as_chunks::<4>().0.iter().map(|b| f32::from_le_bytes(*b))),
    }
}
