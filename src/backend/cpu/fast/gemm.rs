//! `gemm`, `gemm_f32` and `gate_up` of policy `fast`: what a job is and how it is divided.
//!
//! # Numerics
//! Every output is one chain over ascending k, from +0, in FP32: `fma(w, x, sum)` on AVX2 and AVX-512,
//! multiply and add on portable code, and `VDPBF16PS` per pair of k where the machine has it. An odd k
//! is padded with a zero product. Rows of weights are lanes, so no sum is ever split or reordered:
//! decode, batches and prefill tiles give a row the same bits. Sums that a block of k leaves off go
//! through memory as FP32, exactly. Products that share a job share nothing else.

use super::kernels::{Kernels, Set};
use super::one_token::one_token;
use super::panels::Panels;
use super::simd::{LANES, Simd, dispatch};
use super::tiles::several_tokens;
use crate::backend::cpu::math::silu;
use crate::backend::cpu::rows::{Scatter, for_falling_ranges};
use crate::tensor::{bf16_bits, round_bf16};
use std::borrow::Cow;
use std::ops::Range;

/// Least weight bytes of a task with few tokens, where reading the weights takes the time.
const TASK_BYTES: usize = 32 << 10;
/// Most tokens that count as few.
const FEW_TOKENS: usize = 16;

/// One matrix of a job (or the two of `gate_up`), and where its results go.
pub(in crate::backend::cpu) struct Product<'a> {
    pub(in crate::backend::cpu) weight: &'a Panels,
    /// The second matrix of `gate_up`; `weight` is the gate then.
    pub(in crate::backend::cpu) up: Option<&'a Panels>,
    /// `tokens × n`.
    pub(in crate::backend::cpu) out: &'a mut [f32],
    /// Whether results are rounded to BF16.
    pub(in crate::backend::cpu) round: bool,
}

/// Y = X·Wᵀ of every product, all with the same rows of `x` (`tokens × k`), as one job. With `up` it is
/// the region `gate_up`: silu(X·Gᵀ) × X·Uᵀ, each product rounded by itself.
///
/// Under `avx512_bf16` rows of `x` must be BF16 values (others would be rounded).
///
/// # Panics
/// When the matrices have different numbers of columns.
pub(in crate::backend::cpu) fn products<'a>(
    kernels: Kernels,
    x: &[f32],
    products: impl IntoIterator<Item = Product<'a>>,
) {
    let mut count = 0;
    let parts = products.into_iter().map(|Product { weight, up, out, round }| {
        let first = count;
        count += weight.count();
        Part { weight, up, out: Scatter::new(out, weight.rows), round, first }
    });
    let parts: Vec<Part<'_>> = parts.collect();
    let Some(part) = parts.first() else { return };
    let cols = part.weight.cols;
    assert!(parts.iter().flat_map(Part::matrices).all(|m| m.cols == cols));
    let tokens = x.len() / cols;
    let least = least_panels(part.weight, part.up.is_some(), tokens);
    let x = Rows::new(kernels, x, cols);
    let job = Job { parts: &parts, x: &x, tokens };
    for_falling_ranges(count, least, |panels| product(kernels, &job, panels));
}

/// [`products`] of one matrix.
pub(in crate::backend::cpu) fn gemm(
    kernels: Kernels,
    x: &[f32],
    weight: &Panels,
    out: &mut [f32],
    round: bool,
) {
    products(kernels, x, [Product { weight, up: None, out, round }]);
}

/// Panels of the smallest task.
fn least_panels(weight: &Panels, fused: bool, tokens: usize) -> usize {
    let bytes = weight.panel_bytes() * if fused { 2 } else { 1 };
    if tokens <= FEW_TOKENS { TASK_BYTES.div_ceil(bytes) } else { 1 }
}

/// Activation rows as the kernels of an instruction set read them.
pub(in crate::backend::cpu) struct Rows<'a> {
    words: Cow<'a, [u32]>,
    /// Of a row.
    words_per_row: usize,
}

impl<'a> Rows<'a> {
    /// Rows of `cols` values; an odd last k gets a zero beside it.
    pub(in crate::backend::cpu) fn new(kernels: Kernels, x: &'a [f32], cols: usize) -> Rows<'a> {
        let pairs = cols.div_ceil(2);
        if kernels.set() == Set::Avx512Bf16 {
            let pair = |p: &[f32]| {
                let odd = p.get(1).map_or(0, |x| u32::from(bf16_bits(*x)));
                odd << 16 | u32::from(bf16_bits(p[0]))
            };
            let words = x.chunks_exact(cols).flat_map(|row| row.chunks(2).map(pair)).collect();
            return Rows { words: Cow::Owned(words), words_per_row: pairs };
        }
        if cols.is_multiple_of(2) {
            // SAFETY: FP32 values and their bits have the same size and alignment.
            let words = unsafe { std::slice::from_raw_parts(x.as_ptr().cast::<u32>(), x.len()) };
            return Rows { words: Cow::Borrowed(words), words_per_row: cols };
        }
        let padded = |row: &[f32]| row.iter().map(|x| x.to_bits()).chain([0]).collect::<Vec<u32>>();
        let words = x.chunks_exact(cols).flat_map(padded).collect();
        Rows { words: Cow::Owned(words), words_per_row: cols + 1 }
    }

    /// The words of a row, from `pair` on; `S` is of the kernels that the rows were made for.
    #[inline(always)]
    pub(super) fn row<S: Simd>(&self, row: usize, pair: usize) -> *const u32 {
        self.words[row * self.words_per_row + pair * S::STEPS..].as_ptr()
    }

    /// Bytes of a row.
    pub(super) fn row_bytes(&self) -> usize {
        self.words_per_row * size_of::<u32>()
    }
}

/// What the tasks of one job share.
struct Job<'a> {
    parts: &'a [Part<'a>],
    x: &'a Rows<'a>,
    tokens: usize,
}

/// One product of a job; panels of all products are numbered through.
pub(super) struct Part<'a> {
    pub(super) weight: &'a Panels,
    pub(super) up: Option<&'a Panels>,
    out: Scatter<'a>,
    round: bool,
    first: usize,
}

dispatch! {
    /// Some panels against all tokens.
    fn product = product_body(job: &Job<'_>, panels: Range<usize>);
}

#[inline(always)]
fn product_body<S: Simd>(job: &Job<'_>, panels: Range<usize>) {
    for part in job.parts {
        let own = |panel: usize| panel.saturating_sub(part.first).min(part.weight.count());
        let panels = own(panels.start)..own(panels.end);
        match job.tokens {
            1 => one_token::<S>(job.x, part, panels),
            tokens => several_tokens::<S>(job.x, part, panels, tokens),
        }
    }
}

impl Part<'_> {
    /// The matrices: one, or gate and up.
    #[inline(always)]
    pub(super) fn matrices(&self) -> impl Iterator<Item = &Panels> {
        [Some(self.weight), self.up].into_iter().flatten()
    }

    /// Finishes the sums of one panel and token, and writes the outputs that exist.
    #[inline(always)]
    pub(super) fn finish(
        &self,
        token: usize,
        panel: usize,
        sums: &mut [f32; LANES],
        up: Option<&mut [f32; LANES]>,
    ) {
        round_all(sums, self.round);
        if let Some(up) = up {
            // As `silu_mul` after two products.
            round_all(up, self.round);
            for (gate, up) in sums.iter_mut().zip(up) {
                *gate = silu(*gate) * *up;
            }
            round_all(sums, self.round);
        }
        let row = panel * LANES;
        let count = (self.weight.rows - row).min(LANES);
        // SAFETY: tasks own disjoint panels, hence disjoint columns.
        unsafe { self.out.write(token, row, &sums[..count]) };
    }
}

/// Rounds to BF16 where the policy does.
#[inline(always)]
fn round_all(values: &mut [f32; LANES], round: bool) {
    if round {
        values.iter_mut().for_each(|v| *v = round_bf16(*v));
    }
}
