//! Whole products: a token's outputs have the same bits whatever is computed beside it.

use super::data::{Adversary, fill_element, fill_scale};
use super::fact::Fact;
use super::matrix_model::{MatrixModel, Rounding};
use crate::backend::cuda::{Argument, Chaining, CudaError, Device, GemmKernel, Launch, Product};
use crate::tensor::segments;
use crate::tensor::{bf16_bits, bf16_from_bits};
use crate::units::{Digest, SplitMix64};
use cudarc::driver::CudaSlice;

/// A weight shape and the numbers of tokens that are compared.
#[derive(Clone, Copy, Debug)]
pub struct RowsQuestion<'a> {
    pub device: &'a Device,
    pub m: usize,
    pub k: usize,
    /// Tokens of the reference product.
    pub all_tokens: usize,
    /// Numbers of tokens computed apart.
    pub tokens: &'a [usize],
    pub seed: u64,
}

const WEIGHT_SEED: u64 = 0x0a55_a91d;

/// Random weights on the device, standard deviation 1 / √k; element i is `fill_element(seed, i)`.
pub(super) fn fill(
    device: &Device,
    elements: usize,
    seed: u64,
    deviation: f64,
) -> Result<CudaSlice<u16>, CudaError> {
    let memory = device.zeros::<u16>(elements)?;
    let function = device.kernel("memory_probe", "fill_normal_bf16")?;
    let arguments = vec![
        Argument::U64(device.address(&memory)),
        Argument::U64(elements as u64),
        Argument::U64(seed),
        Argument::F32(fill_scale(deviation)),
    ];
    // SAFETY: the arguments are those of the kernel; the memory has `elements` elements.
    unsafe { Launch::plain(2048, 256).run(device, &function, arguments)? };
    Ok(memory)
}

/// The arithmetic that explains Hopper's matrix units (fact `arithmetic`).
const HOPPER: MatrixModel =
    MatrixModel { block: 16, fraction: 25, rounding: Rounding::TowardsZero };

impl MatrixModel {
    /// One output of the region in the contract's order, as BF16 bits.
    fn product(&self, weights: &[u16], input: &[u16]) -> u16 {
        let span = weights.len() / segments(weights.len());
        let mut parts: Vec<f32> = weights
            .chunks(span)
            .zip(input.chunks(span))
            .map(|(w, x)| f32::from_bits(self.element(w, x, 0)))
            .collect();
        while parts.len() > 1 {
            parts = parts.chunks(2).map(|pair| pair[0] + pair[1]).collect();
        }
        bf16_bits(parts[0])
    }
}

impl RowsQuestion<'_> {
    /// Compares every kernel at every number of tokens, tokens at shifted places too, with the
    /// largest product; checks that product against FP64.
    ///
    /// # Errors
    /// The device could not be asked.
    pub fn ask(&self) -> Result<Fact, CudaError> {
        let RowsQuestion { device, m, k, all_tokens, .. } = *self;
        let deviation = 1.0 / (k as f64).sqrt();
        let weights = fill(device, m * k, WEIGHT_SEED, deviation)?;
        let mut fact = Fact::default();
        for kind in [Adversary::Normal, Adversary::Mixed] {
            let mut random = SplitMix64::new(self.seed);
            let input: Vec<u16> =
                (0..all_tokens).flat_map(|_| kind.row(&mut random, k, false)).collect();
            let input_memory = device.upload(&input)?;
            let reference = GemmKernel::choose(device.arch(), all_tokens);
            let run = |kernel: GemmKernel, first: usize, n: usize| {
                self.product(kernel, &weights, &input_memory, first, n)
            };
            let expected = run(reference, 0, all_tokens)?;
            fact.note(&format!("{}: digest", kind.name()), digest(&expected));
            self.check_against_fp64(&mut fact, kind, &input, &expected, deviation);
            for kernel in GemmKernel::all(device.arch()) {
                let (mut compared, mut different) = (0, 0);
                for &n in self.tokens {
                    for first in [0, 7, all_tokens - n] {
                        if first + n > all_tokens || !kernel_takes(kernel, k) {
                            continue;
                        }
                        let found = run(kernel, first, n)?;
                        let expected = &expected[first * m..(first + n) * m];
                        compared += found.len();
                        different += found.iter().zip(expected).filter(|(a, b)| a != b).count();
                    }
                }
                if compared > 0 {
                    fact.count(&format!("{kernel:?}/{}", kind.name()), compared, different);
                }
            }
        }
        Ok(fact)
    }

    fn product(
        &self,
        kernel: GemmKernel,
        weights: &CudaSlice<u16>,
        input: &CudaSlice<u16>,
        first: usize,
        n: usize,
    ) -> Result<Vec<u16>, CudaError> {
        let device = self.device;
        // Poison: BF16 NaN.
        let output = device.upload(&vec![0x7fc0u16; n * self.m])?;
        let product = Product {
            weights: device.address(weights),
            input: device.address(input) + (first * self.k * 2) as u64,
            output: device.address(&output),
            m: self.m,
            n,
            k: self.k,
            output_stride: self.m,
            wide: false,
        };
        // SAFETY: the memory has the product's sizes and lives until the download.
        unsafe { kernel.launch(device, &product, Chaining::default())? };
        device.download(&output)
    }

    /// 64 outputs against FP64 over the same BF16 operands: within half a BF16 place of the value
    /// and FP32's share of the sum of magnitudes.
    fn check_against_fp64(
        &self,
        fact: &mut Fact,
        kind: Adversary,
        input: &[u16],
        found: &[u16],
        deviation: f64,
    ) {
        let mut random = SplitMix64::new(self.seed ^ 0x64);
        let scale = fill_scale(deviation);
        let mut worst: f64 = 0.0;
        let (mut wrong, mut unlike) = (0, 0);
        for _ in 0..64 {
            let row = random.next_word() as usize % self.m;
            let token = random.next_word() as usize % self.all_tokens;
            let (mut exact, mut magnitude) = (0.0, 0.0);
            let weights: Vec<u16> = (0..self.k)
                .map(|i| fill_element(WEIGHT_SEED, (row * self.k + i) as u64, scale))
                .collect();
            let input = &input[token * self.k..(token + 1) * self.k];
            for (weight, x) in weights.iter().zip(input) {
                let product = f64::from(bf16_from_bits(*weight)) * f64::from(bf16_from_bits(*x));
                exact += product;
                magnitude += product.abs();
            }
            let bits = found[token * self.m + row];
            unlike += usize::from(bits != HOPPER.product(&weights, input));
            let found = f64::from(bf16_from_bits(bits));
            let allowed = exact.abs() / 256.0 + magnitude * 1e-6;
            let error = (found - exact).abs() / allowed;
            worst = if error.is_nan() { f64::NAN } else { worst.max(error) };
            wrong += usize::from(error.is_nan() || error > 1.0);
        }
        fact.note(&format!("{}: worst error over the allowed", kind.name()), worst.to_string());
        fact.count(&format!("against FP64/{}", kind.name()), 64, wrong);
        // The whole product on the host, bit for bit: evidence for the model, no condition.
        fact.note(
            &format!("against the bit model/{}", kind.name()),
            format!("{unlike} of 64 differ"),
        );
    }
}

fn kernel_takes(kernel: GemmKernel, k: usize) -> bool {
    match kernel {
        GemmKernel::Rows { .. } => true,
        GemmKernel::Tile { cluster, .. } => segments(k).is_multiple_of(cluster as usize),
    }
}

fn digest(data: &[u16]) -> String {
    let bytes: Vec<u8> = data.iter().flat_map(|v| v.to_le_bytes()).collect();
    Digest::of(&bytes).to_string()
}
