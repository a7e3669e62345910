//! Region `rope`: rotary position embedding.
//!
//! # Numerics
//! Inverse frequencies are computed in FP64 and rounded to FP32; the angle is the FP32 product of
//! position and frequency; its cosine and sine are computed in FP64, rounded to FP32 and, where
//! the policy rounds, to BF16 before use. x₁·cos − x₂·sin and x₂·cos + x₁·sin are FP32 with one
//! rounding. Where pairs are interleaved, cosine and sine stay in FP32. YaRN (Peng et al., 2023) also
//! multiplies cosine and sine by its magnitude. `linear` scaling divides every frequency; `llama3` scaling
//! follows Meta's published rule. All apply at every position.

use super::isa::multiversion;
use super::rows::for_each_row;
use crate::backend::cpu::Isa;
use crate::descriptor::{Rope, RopeConvention, RopeScaling};
use crate::tensor::{exp64, ln64, round_bf16, sin_cos64};
use crate::units::mutant;

/// Frequencies of a model's rotary embedding.
#[derive(Clone, Debug)]
pub(crate) struct Frequencies {
    convention: RopeConvention,
    inverse: Vec<f32>,
    /// Factor on cosines and sines.
    magnitude: f64,
}

impl Frequencies {
    /// The frequencies that the descriptor declares.
    pub(crate) fn new(rope: &Rope) -> Frequencies {
        let half = rope.rotary_dim / 2;
        let base = if mutant!("rope_base") { rope.theta * 2.0 } else { rope.theta };
        let ln_theta = ln64(base);
        let inverse = (0..half)
            .map(|i| {
                let exponent = 2.0 * i as f64 / rope.rotary_dim as f64;
                scale(exp64(-exponent * ln_theta) as f32, i, rope)
            })
            .collect();
        let convention = match (mutant!("rope_other_pairs"), rope.convention) {
            (true, RopeConvention::HalfSplit) => RopeConvention::Interleaved,
            (true, RopeConvention::Interleaved) => RopeConvention::HalfSplit,
            (false, convention) => convention,
        };
        let magnitude = rope.scaling.rotary_magnitude();
        Frequencies { convention, inverse, magnitude }
    }

    /// Inverse frequencies, one per pair.
    pub(crate) fn inverse(&self) -> &[f32] {
        &self.inverse
    }

    /// Cosines and sines of some positions.
    pub(super) fn table(&self, positions: &[usize], round: bool) -> Table {
        let half = self.inverse.len();
        // Interleaved models rotate in FP32 throughout.
        let round = round && self.convention == RopeConvention::HalfSplit;
        let mut cos = Vec::with_capacity(positions.len() * half);
        let mut sin = Vec::with_capacity(positions.len() * half);
        for position in positions {
            for inverse in &self.inverse {
                let (s, c) = sin_cos64(f64::from(*position as f32 * inverse));
                let (s, c) = ((s * self.magnitude) as f32, (c * self.magnitude) as f32);
                cos.push(if round { round_bf16(c) } else { c });
                sin.push(if round { round_bf16(s) } else { s });
            }
        }
        Table { convention: self.convention, half, cos, sin }
    }
}

fn scale(inverse: f32, i: usize, rope: &Rope) -> f32 {
    match &rope.scaling {
        RopeScaling::None {} => inverse,
        RopeScaling::Linear { .. } if mutant!("rope_scaling_ignored") => inverse,
        RopeScaling::Linear { factor } => inverse / *factor as f32,
        RopeScaling::Llama3 { .. } if mutant!("rope_scaling_ignored") => inverse,
        RopeScaling::Llama3 {
            factor,
            low_freq_factor,
            high_freq_factor,
            original_max_position_tokens,
        } => {
            let (factor, low, high) =
                (*factor as f32, *low_freq_factor as f32, *high_freq_factor as f32);
            let original = *original_max_position_tokens as f32;
            let wavelength = 2.0 * std::f32::consts::PI / inverse;
            if wavelength < original / high {
                inverse
            } else if wavelength > original / low {
                inverse / factor
            } else {
                let smooth = (original / wavelength - low) / (high - low);
                (1.0 - smooth) * inverse / factor + smooth * inverse
            }
        }
        RopeScaling::Yarn {
            factor, beta_fast, beta_slow, original_max_position_tokens, ..
        } => {
            // The dimension whose frequency turns `rotations` times within the original context.
            let dimension = |rotations: f64| {
                let turns =
                    *original_max_position_tokens as f64 / (rotations * 2.0 * std::f64::consts::PI);
                rope.rotary_dim as f64 * ln64(turns) / (2.0 * ln64(rope.theta))
            };
            let low = dimension(*beta_fast).floor().max(0.0);
            let high = dimension(*beta_slow).ceil().min(rope.rotary_dim as f64 - 1.0);
            let high = if low == high { high + 0.001 } else { high };
            let ramp = ((i as f32 - low as f32) / (high - low) as f32).clamp(0.0, 1.0);
            let kept = 1.0 - ramp;
            inverse / *factor as f32 * (1.0 - kept) + inverse * kept
        }
    }
}

/// Cosines and sines, one line of `rotary_dim / 2` per row of a step.
#[derive(Clone, Debug)]
pub(super) struct Table {
    convention: RopeConvention,
    half: usize,
    cos: Vec<f32>,
    sin: Vec<f32>,
}

/// Rotates the dimensions from `offset` on of every head of every row of `x`, in place.
pub(super) fn rope(
    isa: Isa,
    x: &mut [f32],
    [heads, head_dim, offset]: [usize; 3],
    table: &Table,
    round: bool,
) {
    let half = table.half;
    for_each_row(x, heads * head_dim, |i, row| {
        let cos = &table.cos[i * half..][..half];
        let sin = &table.sin[i * half..][..half];
        for head in row.chunks_exact_mut(head_dim) {
            rotate(isa, &mut head[offset..offset + 2 * half], table.convention, cos, sin, round);
        }
    });
}

multiversion! {
    /// Rotates the pairs of one head.
    fn rotate = rotate_body(
        head: &mut [f32], convention: RopeConvention, cos: &[f32], sin: &[f32], round: bool,
    );
}

#[inline(always)]
fn rotate_body(
    head: &mut [f32],
    convention: RopeConvention,
    cos: &[f32],
    sin: &[f32],
    round: bool,
) {
    let turn = |a: &mut f32, b: &mut f32, cos: f32, sin: f32| {
        let (x1, x2) = (*a, *b);
        let (y1, y2) = (x1 * cos - x2 * sin, x2 * cos + x1 * sin);
        *a = if round { round_bf16(y1) } else { y1 };
        *b = if round { round_bf16(y2) } else { y2 };
    };
    let angles = cos.iter().zip(sin);
    match convention {
        RopeConvention::HalfSplit => {
            let (first, second) = head.split_at_mut(cos.len());
            let pairs = first.iter_mut().zip(second).zip(angles);
            pairs.for_each(|((a, b), (cos, sin))| turn(a, b, *cos, *sin));
        }
        RopeConvention::Interleaved => {
            let pairs = head.as_chunks_mut::<2>().0.iter_mut().zip(angles);
            pairs.for_each(|([a, b], (cos, sin))| turn(a, b, *cos, *sin));
        }
    }
}
