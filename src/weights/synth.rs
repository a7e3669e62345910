//! Synthetic weights: a pure function of seed, role, layer and element index.
//!
//! For speed work on models too large to ship, and for tests. Zeros would flatter every matrix
//! product (power, compression, denormals), so scale and entropy are those of trained weights:
//! activations stay of order one through any depth, attention is neither flat nor a single spike,
//! gated-delta-net decays span short and long memories.
//!
//! # The generator, version 1
//!
//! * Key of a weight: the first 8 bytes, little-endian, of the SHA-256 of the text
//!   `assay synthetic 1 SEED ROLE LAYER` (decimal numbers, `-` for no layer).
//! * Hash of element i (row-major in the logical weight): SplitMix64's output function applied to
//!   key + (i + 1) · 0x9e3779b97f4a7c15 (mod 2^64).
//! * Bell-shaped integer n: the sum of the hash's four 16-bit lanes − 131070; symmetric, with
//!   standard deviation 37837. Flat integer u: the hash's low 16 bits.
//! * Value: an integer below 2^24 in magnitude times a power of two (see [`Law`]), which FP32 holds
//!   exactly, rounded once to BF16.
//!
//! Nothing but integer arithmetic, one exact conversion and one rounding takes part, so every
//! machine and device gives the same bits.

use super::identity;
use super::int4::Packer;
use super::set::Logical;
use super::{QuantiseError, Recipe, WeightSet, WeightsSource};
use crate::descriptor::{Descriptor, NormStyle, RoleName};
use crate::tensor::{Shared, Storage, Weight, bf16_bits};
use crate::units::Digest;
use rayon::prelude::*;

/// The generator's name in manifests.
pub const SYNTHETIC_GENERATOR: &str = "assay-counter-hash";
/// Raised whenever any bit that it produces changes.
pub const SYNTHETIC_VERSION: u32 = 1;

/// Standard deviation of the bell-shaped integer, rounded down.
const BELL_DEVIATION: u128 = 37837;
const CHUNK_ELEMENTS: usize = 1 << 16;

/// How an element's hash becomes its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Law {
    /// (offset + n · factor) · 2^exponent
    Bell { offset: i32, factor: i32, exponent: i32 },
    /// (offset + u · factor) · 2^exponent
    Flat { offset: i32, factor: i32, exponent: i32 },
}

/// One logical weight of the generator, not yet made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SyntheticWeight {
    pub rows: usize,
    pub cols: usize,
    key: u64,
    law: Law,
}

/// How a hash becomes an element: (offset + (flat ? low 16 bits : bell) · factor) · scale, one exact
/// conversion to FP32, one rounding to BF16.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SyntheticLaw {
    pub flat: bool,
    pub offset: i32,
    pub factor: i32,
    /// A power of two.
    pub scale: f32,
}

impl SyntheticWeight {
    /// The weight of a role.
    pub fn new(
        descriptor: &Descriptor,
        seed: u64,
        role: RoleName,
        layer: Option<usize>,
    ) -> Option<SyntheticWeight> {
        let found = descriptor.roles.iter().find(|r| r.name == role)?;
        let (rows, cols) = found.matrix();
        let law = law(role, cols, descriptor.norm_style);
        Some(SyntheticWeight { rows, cols, key: key(seed, role, layer), law })
    }

    /// What the hash of every element starts from.
    pub fn key(&self) -> u64 {
        self.key
    }

    /// The law of its elements.
    pub fn law(&self) -> SyntheticLaw {
        let (flat, offset, factor, exponent) = match self.law {
            Law::Bell { offset, factor, exponent } => (false, offset, factor, exponent),
            Law::Flat { offset, factor, exponent } => (true, offset, factor, exponent),
        };
        SyntheticLaw { flat, offset, factor, scale: power_of_two(exponent) }
    }

    /// Makes it on the host.
    pub fn generate(&self) -> Weight {
        let elements = generate(self.key, self.law, self.rows * self.cols);
        let storage = Storage::Bf16(Shared::owned(elements));
        Weight { rows: self.rows, cols: self.cols, storage }
    }
}

/// Weights of `descriptor` from `seed`, all BF16.
///
/// # Shapes
/// Those of the descriptor's roles; tied roles share.
///
/// # Numerics
/// See the module's documentation; the same bits for any number of threads.
pub fn synth(descriptor: &Descriptor, seed: u64) -> WeightSet {
    let (logical, source) = generate_all(descriptor, seed, &mut |_, _, weight| weight);
    WeightSet::new(logical, source)
}

/// As [`synth`], with some roles packed as soon as they are generated, so that their BF16 values
/// are not all in memory at the same time.
///
/// # Errors
/// As [`WeightSet::quantise`].
pub fn synth_quantised(
    descriptor: &Descriptor,
    seed: u64,
    recipe: &Recipe,
) -> Result<WeightSet, QuantiseError> {
    let mut packer = Packer::new(descriptor, recipe)?;
    let (logical, source) =
        generate_all(descriptor, seed, &mut |role, layer, weight| packer.take(role, layer, weight));
    let (logical, artifact) = packer.finish(logical)?;
    Ok(WeightSet::packed(logical, source, artifact))
}

/// Generates weight by weight; `keep` makes of each what stays.
fn generate_all(
    descriptor: &Descriptor,
    seed: u64,
    keep: &mut dyn FnMut(RoleName, Option<usize>, Weight) -> Weight,
) -> (Logical, WeightsSource) {
    let mut weights = std::collections::BTreeMap::new();
    for role in descriptor.roles.iter().filter(|r| r.tied_to.is_none()) {
        let (rows, cols) = role.matrix();
        let law = law(role.name, cols, descriptor.norm_style);
        for layer in role.instances() {
            let elements = generate(key(seed, role.name, layer), law, rows * cols);
            let storage = Storage::Bf16(Shared::owned(elements));
            let weight = keep(role.name, layer, Weight { rows, cols, storage });
            weights.insert((role.name, layer), weight);
        }
    }
    (Logical { weights, ties: ties(descriptor) }, synth_source(descriptor, seed))
}

fn ties(descriptor: &Descriptor) -> std::collections::BTreeMap<RoleName, RoleName> {
    descriptor.roles.iter().filter_map(|r| Some((r.name, r.tied_to?))).collect()
}

/// What synthetic weights are, as they are generated, without making them.
pub fn synth_source(descriptor: &Descriptor, seed: u64) -> WeightsSource {
    let mut weights = std::collections::BTreeMap::new();
    for role in descriptor.roles.iter().filter(|r| r.tied_to.is_none()) {
        let (rows, cols) = role.matrix();
        for layer in role.instances() {
            let storage = Storage::Bf16(Shared::owned(Vec::new()));
            weights.insert((role.name, layer), Weight { rows, cols, storage });
        }
    }
    WeightsSource::Synthetic {
        generator: SYNTHETIC_GENERATOR.to_owned(),
        version: SYNTHETIC_VERSION,
        seed,
        roles: identity::roles_digest(&Logical { weights, ties: ties(descriptor) }),
    }
}

fn key(seed: u64, role: RoleName, layer: Option<usize>) -> u64 {
    let layer = layer.map_or("-".to_owned(), |l| l.to_string());
    let text = format!("assay synthetic {SYNTHETIC_VERSION} {seed} {role} {layer}");
    let digest = Digest::of(text.as_bytes());
    digest.0[..8].iter().rev().fold(0, |key, byte| (key << 8) | u64::from(*byte))
}

fn generate(key: u64, law: Law, count: usize) -> Vec<u16> {
    let mut elements = vec![0u16; count];
    elements.par_chunks_mut(CHUNK_ELEMENTS).enumerate().for_each(|(chunk, out)| {
        let first = (chunk * CHUNK_ELEMENTS) as u64;
        for (i, element) in out.iter_mut().enumerate() {
            *element = value(hash(key, first + i as u64), law);
        }
    });
    elements
}

#[inline(always)]
fn hash(key: u64, index: u64) -> u64 {
    let mut z = key.wrapping_add((index.wrapping_add(1)).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[inline(always)]
fn value(hash: u64, law: Law) -> u16 {
    let lane = |i: u32| ((hash >> (16 * i)) & 0xffff) as i32;
    let (integer, exponent) = match law {
        Law::Bell { offset, factor, exponent } => {
            let bell = lane(0) + lane(1) + lane(2) + lane(3) - 131_070;
            (offset + bell * factor, exponent)
        }
        Law::Flat { offset, factor, exponent } => (offset + lane(0) * factor, exponent),
    };
    bf16_bits(integer as f32 * power_of_two(exponent))
}

/// 2^exponent for exponents of normal FP32 numbers.
fn power_of_two(exponent: i32) -> f32 {
    f32::from_bits(((exponent + 127) as u32) << 23)
}

/// The law of a role whose rows have `inputs` elements.
fn law(role: RoleName, inputs: usize, norm_style: NormStyle) -> Law {
    use RoleName::*;
    // Around 1 or, where the norm adds 1 itself, around 0; deviation 37837/2^18 = 0.14.
    let norm = |centre: i32| Law::Bell { offset: centre << 18, factor: 1, exponent: -18 };
    let styled = norm(i32::from(norm_style == NormStyle::Plain));
    // Square of the gain as a fraction: a unit-variance input gives outputs of this variance.
    let matrix = |numerator, denominator| bell_of_gain(numerator, denominator, inputs);
    match role {
        FinalNorm | InputNorm | PostNorm | AttnQNorm | AttnKNorm | MlaQANorm | MlaKvANorm => styled,
        AttnQBias | AttnKBias | AttnVBias => Law::Bell { offset: 0, factor: 1, exponent: -18 },
        GdnNorm => norm(1),
        // A between 1 and 15.6, as in initialised and in trained models: ln A from 0 to 2.75.
        GdnALog => Law::Flat { offset: 0, factor: 11, exponent: -18 },
        // Step sizes softplus(dt_bias) between 0.001 and 0.1: from −7 to −2.25.
        GdnDtBias => Law::Flat { offset: -7 << 18, factor: 19, exponent: -18 },
        // Small beside dt_bias, so that decays stay in the range that dt_bias sets.
        GdnA => matrix(1, 16),
        // Logits with a deviation of 3, also where the embedding serves as the head.
        Embed | LmHead => matrix(9, 1),
        // Attention scores with a deviation of 2.
        AttnQ | AttnK => matrix(2, 1),
        AttnV | AttnO | GdnQkv | GdnZ | GdnB | GdnConv | GdnOut | MlpGate | MlpUp | MlpDown
        | MoeRouter | MoeGate | MoeUp | MoeDown | SharedGate | SharedUp | SharedDown
        | SharedScale | MlaQ | MlaQA | MlaQB | MlaKvA | MlaKvB | MlaO => matrix(1, 1),
    }
}

/// The bell with the largest 7-bit factor whose variance times `inputs` does not exceed
/// `numerator / denominator`.
fn bell_of_gain(numerator: u128, denominator: u128, inputs: usize) -> Law {
    let fits = |factor: u128, shift: u32| {
        let variance = (factor * BELL_DEVIATION).pow(2) * inputs.max(1) as u128;
        variance * denominator <= numerator << (2 * shift)
    };
    let shift = (0..=50).find(|shift| fits(64, *shift)).unwrap_or(50);
    let factor = (64..128).rev().find(|factor| fits(*factor, shift)).unwrap_or(64);
    Law::Bell { offset: 0, factor: factor as i32, exponent: -(shift as i32) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tensor::bf16_from_bits;

    /// From an independent implementation in Python.
    #[test]
    fn known_answers() {
        let law_q = law(RoleName::AttnQ, 576, NormStyle::Plain);
        let q = generate(key(7, RoleName::AttnQ, Some(3)), law_q, 70_000);
        assert_eq!(q[..4], KNOWN_Q);
        assert_eq!(q[69_999], KNOWN_Q_LAST);
        let law_dt = law(RoleName::GdnDtBias, 6, NormStyle::OnePlus);
        assert_eq!(generate(key(u64::MAX, RoleName::GdnDtBias, None), law_dt, 4), KNOWN_DT);
    }
    const KNOWN_Q: [u16; 4] = [0x3d71, 0xbd1f, 0xbbba, 0x3d3b];
    const KNOWN_Q_LAST: u16 = 0xbc89;
    const KNOWN_DT: [u16; 4] = [0xc0d2, 0xc0bf, 0xc065, 0xc0aa];

    fn moments(values: &[f32]) -> (f64, f64) {
        let mean = values.iter().map(|v| f64::from(*v)).sum::<f64>() / values.len() as f64;
        let square = values.iter().map(|v| (f64::from(*v) - mean).powi(2)).sum::<f64>();
        (mean, (square / values.len() as f64).sqrt())
    }

    fn sample(role: RoleName, inputs: usize, style: NormStyle) -> Vec<f32> {
        let bits = generate(key(1, role, Some(0)), law(role, inputs, style), 100_000);
        bits.into_iter().map(bf16_from_bits).collect()
    }

    #[test]
    fn scales_are_those_of_trained_weights() {
        for inputs in [4, 64, 576, 5120, 17408] {
            let (mean, deviation) = moments(&sample(RoleName::MlpGate, inputs, NormStyle::Plain));
            let target = 1.0 / (inputs as f64).sqrt();
            assert!(mean.abs() < 0.02 * target, "{inputs}: mean {mean}");
            assert!((0.97..1.01).contains(&(deviation / target)), "{inputs}: {deviation}");
        }
        let (mean, deviation) = moments(&sample(RoleName::InputNorm, 64, NormStyle::Plain));
        assert!((mean - 1.0).abs() < 0.01 && (deviation - 0.144).abs() < 0.01);
        let (mean, _) = moments(&sample(RoleName::InputNorm, 64, NormStyle::OnePlus));
        assert!(mean.abs() < 0.01);
        let (mean, _) = moments(&sample(RoleName::GdnNorm, 64, NormStyle::OnePlus));
        assert!((mean - 1.0).abs() < 0.01);
    }

    #[test]
    fn decays_span_short_and_long_memories() {
        let a_log = sample(RoleName::GdnALog, 1, NormStyle::OnePlus);
        let dt = sample(RoleName::GdnDtBias, 1, NormStyle::OnePlus);
        let decays: Vec<f64> = a_log
            .iter()
            .zip(&dt)
            .map(|(a, dt)| (-f64::from(*a).exp() * f64::from(*dt).exp().ln_1p()).exp())
            .collect();
        assert!(decays.iter().all(|d| (0.15..1.0).contains(d)));
        assert!(decays.iter().any(|d| *d < 0.3) && decays.iter().any(|d| *d > 0.999));
    }

    #[test]
    fn entropy_is_that_of_distinct_values() {
        let values = sample(RoleName::MlpUp, 5120, NormStyle::Plain);
        let mut counts = std::collections::HashMap::new();
        for value in &values {
            *counts.entry(value.to_bits()).or_insert(0u32) += 1;
        }
        let total = values.len() as f64;
        let entropy: f64 =
            counts.values().map(|c| f64::from(*c) / total).map(|p| -p * p.log2()).sum();
        // Trained BF16 matrices have about 10.5 bits (8 of sign and mantissa, 2.5 of exponent).
        assert!((10.0..11.0).contains(&entropy), "{entropy}");
    }
}
