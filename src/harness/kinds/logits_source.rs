//! Rows of logits as gate files give them.

use crate::units::SplitMix64;
use serde::Deserialize;

/// A row of logits.
#[derive(Clone, Debug, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum LogitsSource {
    /// These values, rounded to FP32.
    Listed(Vec<f64>),
    /// Values that any implementation of SplitMix64 can make again.
    Seeded(Seeded),
}

/// Logit i is (2 · u_i − 1) · `scale` in FP64, rounded to FP32, with u_i the unit of word i of
/// SplitMix64 from `seed`.
#[derive(Clone, Debug, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Seeded {
    ids: usize,
    seed: u64,
    scale: f64,
}

/// Rows longer than any public vocabulary are a mistake in the file.
const LIMIT_IDS: usize = 1 << 20;

impl LogitsSource {
    /// The row.
    ///
    /// # Errors
    /// The row would be empty or longer than any vocabulary.
    pub(super) fn row(&self) -> Result<Vec<f32>, String> {
        let row: Vec<f32> = match self {
            LogitsSource::Listed(values) => values.iter().map(|v| *v as f32).collect(),
            LogitsSource::Seeded(Seeded { ids, seed, scale }) => {
                let mut rng = SplitMix64::new(*seed);
                let ids = (*ids).min(LIMIT_IDS + 1);
                (0..ids).map(|_| ((2.0 * rng.next_unit() - 1.0) * scale) as f32).collect()
            }
        };
        if (1..=LIMIT_IDS).contains(&row.len()) {
            Ok(row)
        } else {
            Err(format!("expected a row of 1 to {LIMIT_IDS} logits, found {}", row.len()))
        }
    }
}
