//! Regions `gemm` and `gemm_f32` on packed four-bit weights: the oracle.
//!
//! # Numerics
//! Codes are unpacked to q · s in FP32 (exact), rounded to BF16 where the policy rounds, and go
//! through the very tiles of `gemm`: the bits are those of a checkpoint that holds the dequantised
//! weights.

use super::super::gemm::matrix;
use super::super::rows::{Scatter, for_ranges, items_per_task};
use super::Rounding;
use crate::backend::cpu::Isa;
use crate::tensor::{Int4, round_bf16};

/// Weight rows of one parallel task; they are unpacked once for all tokens.
const TASK_ROWS: usize = 16;

/// Y = X·Wᵀ, rows of `x` (`tokens × k`) against the rows of `packed` (`n × k`), into `out`
/// (`tokens × n`).
pub(super) fn oracle(isa: Isa, x: &[f32], packed: &Int4, out: &mut [f32], rounding: Rounding) {
    let (n, k) = (packed.shape.rows(), packed.shape.cols());
    let tokens = x.len() / k;
    let scatter = Scatter::new(out, n);
    let least = items_per_task(TASK_ROWS * k * tokens);
    for_ranges(n.div_ceil(TASK_ROWS), least, |tasks| {
        let (mut wide, mut row, mut tile) = (Vec::new(), Vec::new(), Vec::new());
        for task in tasks {
            let rows = task * TASK_ROWS..((task + 1) * TASK_ROWS).min(n);
            wide.clear();
            for r in rows.clone() {
                packed.dequantise_row(r, &mut row);
                match rounding.weights {
                    true => wide.extend(row.iter().map(|w| round_bf16(*w))),
                    false => wide.extend_from_slice(&row),
                }
            }
            tile.resize(tokens * rows.len(), 0.0);
            matrix(isa, x, &wide, k, &mut tile, rounding.results);
            for (token, values) in tile.chunks_exact(rows.len()).enumerate() {
                // SAFETY: tasks own disjoint column ranges of `out`.
                unsafe { scatter.write(token, rows.start, values) };
            }
        }
    });
}

#[cfg(test)]
mod tests {
    use super::super::super::gemm::gemm;
    use super::*;
    use crate::tensor::{Int4Plan, Shared, Storage, Weight, bf16_bits};

    fn noise(n: usize, seed: u32) -> Vec<f32> {
        let mut state = seed;
        (0..n)
            .map(|_| {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                round_bf16((state >> 8) as f32 / 8_388_608.0 - 1.0)
            })
            .collect()
    }

    fn bf16(values: &[f32], rows: usize) -> Weight {
        let storage = Storage::Bf16(Shared::owned(values.iter().map(|v| bf16_bits(*v)).collect()));
        Weight { rows, cols: values.len() / rows, storage }
    }

    #[test]
    fn packed_weights_have_the_bits_of_dequantised_ones() {
        for (n, k) in [(8, 32), (24, 96), (40, 576), (16, 512)] {
            let weight = bf16(&noise(n * k, 3), n);
            let plan = Int4Plan { group: None, keep: false };
            let packed = Int4::of(&weight, plan).unwrap();
            let values = Weight { storage: Storage::Int4(packed.clone()), ..weight }.to_f32();
            let dequantised = bf16(&values, n);
            for tokens in [1, 2, 3, 17] {
                let x = noise(tokens * k, 5);
                let (mut ours, mut theirs) = (vec![f32::NAN; tokens * n], vec![0.0; tokens * n]);
                let rounding = Rounding { weights: true, results: true };
                oracle(Isa::detect(), &x, &packed, &mut ours, rounding);
                gemm(Isa::detect(), &x, &dequantised, &mut theirs, true);
                assert_eq!(ours, theirs, "{n}x{k}, {tokens} tokens");
            }
        }
    }
}
