//! Y = X·Wᵀ of `fast` on packed weights: how the work is divided.

use super::super::rows::{Scatter, for_falling_ranges};
use super::activations::{Activations, Row};
use super::kernel::{TOKENS, tiles};
use super::panel::{Panel, ROWS};
use crate::backend::cpu::Isa;
use crate::tensor::round_bf16;
use std::ops::Range;

/// Tokens whose converted rows stay in a core's cache while tiles pass by.
const TOKEN_BLOCK: usize = 64;
/// Least multiply-adds of one parallel task.
const TASK_PRODUCTS: usize = 96 << 10;

/// One matrix of a job, and where its results go.
pub(in crate::backend::cpu) struct Product<'a> {
    pub(in crate::backend::cpu) panel: &'a Panel,
    /// `tokens × n`.
    pub(in crate::backend::cpu) out: &'a mut [f32],
    /// Whether results are rounded to BF16.
    pub(in crate::backend::cpu) round: bool,
}

/// A product of a job; pairs of tiles of all products are numbered through.
struct Part<'a> {
    panel: &'a Panel,
    out: Scatter<'a>,
    round: bool,
    first: usize,
}

/// Y = X·Wᵀ of every product, all with the same rows of `x` (`tokens × k`) and in groups of one length,
/// as one job.
///
/// # Numerics
/// [`Activations`] of X, then [`super::kernel`]. A row of Y depends on its own row of X alone.
///
/// # Panics
/// When numbers of columns or groups differ.
pub(in crate::backend::cpu) fn int4_products<'a>(
    isa: Isa,
    x: &[f32],
    products: impl IntoIterator<Item = Product<'a>>,
) {
    let mut count = 0;
    let parts = products.into_iter().map(|Product { panel, out, round }| {
        let first = count;
        count += pairs(panel);
        Part { panel, out: Scatter::new(out, panel.shape.rows()), round, first }
    });
    let parts: Vec<Part<'_>> = parts.collect();
    let Some(part) = parts.first() else { return };
    let (k, group) = (part.panel.shape.cols(), part.panel.shape.group());
    assert!(parts.iter().all(|p| (p.panel.shape.cols(), p.panel.shape.group()) == (k, group)));
    let tokens = x.len() / k;
    let activations = Activations::of(isa, x, k, group);
    let rows: Vec<Row<'_>> = (0..tokens).map(|t| activations.row(t)).collect();
    for_falling_ranges(count, least_pairs(k, tokens), |pairs| {
        for part in &parts {
            part.run(isa, &rows, pairs.clone());
        }
    });
}

/// Whether panels can share a job: their groups have one length.
pub(in crate::backend::cpu) fn of_one_group(panels: &[&Panel]) -> bool {
    panels.windows(2).all(|pair| pair[0].shape.group() == pair[1].shape.group())
}

/// Pairs of tiles of a panel, the last one perhaps half.
fn pairs(panel: &Panel) -> usize {
    panel.tiles().div_ceil(2)
}

/// Pairs of tiles of the smallest task.
fn least_pairs(k: usize, tokens: usize) -> usize {
    (TASK_PRODUCTS / (2 * ROWS * k * tokens.max(1))).max(1)
}

impl Part<'_> {
    /// Some pairs of tiles, by their numbers in the job, against all tokens.
    fn run(&self, isa: Isa, rows: &[Row<'_>], range: Range<usize>) {
        let own = |pair: usize| pair.saturating_sub(self.first).min(pairs(self.panel));
        let group = self.panel.shape.group();
        for (block, rows) in rows.chunks(TOKEN_BLOCK).enumerate() {
            for pair in own(range.start)..own(range.end) {
                let first = 2 * pair;
                let second = (first + 1 < self.panel.tiles()).then(|| self.panel.tile(first + 1));
                let width = if second.is_some() { 2 * ROWS } else { ROWS };
                let weights = [Some(self.panel.tile(first)), second];
                for (start, rows) in rows.chunks(TOKENS).enumerate() {
                    let mut results = tiles(isa, weights, rows, group);
                    let token = block * TOKEN_BLOCK + start * TOKENS;
                    for (t, values) in results.iter_mut().enumerate().take(rows.len()) {
                        let values = &mut values[..width];
                        if self.round {
                            values.iter_mut().for_each(|v| *v = round_bf16(*v));
                        }
                        // SAFETY: tasks own disjoint column ranges of `out`.
                        unsafe { self.out.write(token + t, first * ROWS, values) };
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::cpu::pool::Pool;
    use crate::tensor::{Int4, Int4Plan, Shared, Storage, Weight, bf16_bits};

    fn int4_product(isa: Isa, x: &[f32], panel: &Panel, out: &mut [f32], round: bool) {
        int4_products(isa, x, [Product { panel, out, round }]);
    }

    fn noise(n: usize, seed: u32) -> Vec<f32> {
        let mut state = seed;
        (0..n)
            .map(|_| {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                round_bf16((state >> 8) as f32 / 8_388_608.0 - 1.0)
            })
            .collect()
    }

    fn packed(n: usize, k: usize) -> Int4 {
        let bits = noise(n * k, 9).iter().map(|v| bf16_bits(*v)).collect();
        let weight = Weight { rows: n, cols: k, storage: Storage::Bf16(Shared::owned(bits)) };
        Int4::of(&weight, Int4Plan { group: None, keep: false }).unwrap()
    }

    #[test]
    fn every_row_has_the_bits_of_the_definition_on_every_instruction_set() {
        for (n, k) in [(8, 32), (24, 96), (40, 576), (16, 512), (136, 1536)] {
            let packed = packed(n, k);
            let panel = Panel::new(&packed);
            for tokens in [1, 2, 3, 4, 5, 17, 70] {
                let x = noise(tokens * k, 5);
                let portable = portable_rows(&packed, &x);
                for isa in Isa::all() {
                    let mut out = vec![f32::NAN; tokens * n];
                    int4_product(isa, &x, &panel, &mut out, false);
                    assert_eq!(out, portable, "{isa:?} {n}x{k}, {tokens} tokens");
                }
            }
        }
    }

    #[test]
    fn products_of_one_job_have_the_bits_of_products_by_themselves() {
        let pool = Pool::new(2).unwrap();
        let panels = [8, 40, 136, 24].map(|n| Panel::new(&packed(n, 576)));
        for tokens in [1, 5, 70] {
            let x = noise(tokens * 576, 5);
            let empty = || panels.each_ref().map(|p| vec![f32::NAN; tokens * p.shape.rows()]);
            let (mut alone, mut together) = (empty(), empty());
            for (panel, out) in panels.iter().zip(&mut alone) {
                int4_product(Isa::detect(), &x, panel, out, true);
            }
            let job = panels.iter().zip(&mut together);
            let job = job.map(|(panel, out)| Product { panel, out, round: true });
            pool.install(|| int4_products(Isa::detect(), &x, job));
            assert_eq!(alone, together, "{tokens} tokens");
        }
    }

    /// The definition: integers, then groups in ascending order.
    #[expect(clippy::needless_range_loop, reason = "codes and scales are indexed alike")]
    fn portable_rows(packed: &Int4, x: &[f32]) -> Vec<f32> {
        let (k, group) = (packed.shape.cols(), packed.shape.group());
        let activations = Activations::of(Isa::PORTABLE, x, k, group);
        let mut out = Vec::new();
        for t in 0..x.len() / k {
            let x = activations.row(t);
            for r in 0..packed.shape.rows() {
                let (codes, scales) = packed.row(r);
                let mut sum = 0.0f32;
                for g in 0..k / group {
                    let whole: i32 = (g * group..(g + 1) * group)
                        .map(|i| {
                            let nibble = (codes[i / 2] >> (4 * (i % 2))) & 15;
                            let code = i32::from(nibble) - if nibble > 7 { 16 } else { 0 };
                            code * i32::from(x.values[i])
                        })
                        .sum();
                    let scale = crate::tensor::bf16_from_bits(scales[g]) * x.scales[g];
                    sum += whole as f32 * scale;
                }
                out.push(sum);
            }
        }
        out
    }

    #[test]
    fn it_is_close_to_the_dequantised_product() {
        let (n, k) = (64, 576);
        let packed = packed(n, k);
        let x = noise(k, 5);
        let mut out = vec![f32::NAN; n];
        int4_product(Isa::detect(), &x, &Panel::new(&packed), &mut out, false);
        let mut row = Vec::new();
        for (r, found) in out.iter().enumerate() {
            packed.dequantise_row(r, &mut row);
            let exact: f64 = row.iter().zip(&x).map(|(w, x)| f64::from(*w) * f64::from(*x)).sum();
            assert!((exact - f64::from(*found)).abs() < 2e-3, "row {r}: {exact} {found}");
        }
    }

    #[test]
    fn values_that_are_not_finite_are_not_hidden() {
        let packed = packed(8, 64);
        let mut x = noise(64, 5);
        x[3] = f32::INFINITY;
        let mut out = vec![0.0; 8];
        int4_product(Isa::detect(), &x, &Panel::new(&packed), &mut out, true);
        assert!(out.iter().all(|v| v.is_nan()));
    }
}
