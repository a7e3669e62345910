//! Matrices that a converter meets, and those that find its edges.

use crate::harness::plan::AxisValue;
use crate::tensor::round_bf16;
use crate::units::SplitMix64;
use serde::Deserialize;

/// What a matrix holds; all values are BF16.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum Contents {
    /// Bell-shaped, as trained weights are.
    Bell,
    /// Multiples of half a scale: every other value is a tie.
    Ties,
    /// Whole groups of zeros among others.
    ZeroGroups,
    /// One value of a group is a thousand times the others.
    Spikes,
    /// Scales near the least normal BF16.
    Small,
    /// Scales near the largest.
    Large,
}

impl AxisValue for Contents {
    fn axis_text(&self) -> String {
        let debug = format!("{self:?}");
        let words = debug.char_indices().map(|(i, c)| match (i, c.is_ascii_uppercase()) {
            (0, _) | (_, false) => c.to_ascii_lowercase().to_string(),
            _ => format!("_{}", c.to_ascii_lowercase()),
        });
        words.collect()
    }
}

impl Contents {
    /// Every kind of contents.
    pub(super) const ALL: [Contents; 6] = [
        Contents::Bell,
        Contents::Ties,
        Contents::ZeroGroups,
        Contents::Spikes,
        Contents::Small,
        Contents::Large,
    ];

    /// `rows × cols` values in groups of `group`.
    pub(super) fn values(self, rows: usize, cols: usize, group: usize) -> Vec<f32> {
        let mut random = SplitMix64::new(0x1a7 + self as u64);
        let mut unit = || (random.next_word() >> 40) as f32 / 8_388_608.0 - 1.0;
        (0..rows * cols)
            .map(|i| {
                let bell = unit() + unit() + unit();
                let (of_group, index) = (i % group, i / group);
                round_bf16(match self {
                    Contents::Bell => bell * 0.03,
                    Contents::Ties => {
                        // The scale is a power of two times 1: the largest value is 7 of them.
                        let scale = f32::from_bits(((100 + index as u32 % 40) << 23).max(1));
                        let halves = if of_group == 3 { 14.0 } else { (unit() * 14.0).round() };
                        halves * 0.5 * scale
                    }
                    Contents::ZeroGroups if index % 3 == 1 => [0.0, -0.0][i % 2],
                    Contents::ZeroGroups => bell,
                    Contents::Spikes if of_group == index % group => 1000.0 * bell.signum(),
                    Contents::Spikes => bell,
                    Contents::Small => {
                        let largest = 1.3e-37;
                        if of_group == 0 { largest } else { bell / 3.0 * largest }
                    }
                    Contents::Large => {
                        let largest = 3.3e38;
                        if of_group == 1 { -largest } else { bell / 3.0 * largest }
                    }
                })
            })
            .collect()
    }
}
