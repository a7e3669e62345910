//! The distribution that draws must have, computed apart from the sampler.

use crate::generation::{Share, TopK, Truncation};
use schemars::JsonSchema;
use serde::Deserialize;

/// Transforms of `assay generate` between temperature and draw, in this order; at least one.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct TruncationSpec {
    /// Keeps this many of the largest logits; of equal ones the lowest ids.
    top_k: Option<usize>,
    /// Keeps the smallest set of largest probabilities that together reach this.
    top_p: Option<f64>,
    /// Keeps probabilities of at least this share of the largest one.
    min_p: Option<f64>,
}

/// Longest row whose ranks are counted one by one.
const LIMIT_TRUNCATED_IDS: usize = 4096;

impl TruncationSpec {
    /// The setting, as the command line reads it.
    ///
    /// # Errors
    /// A value that the command line refuses, or none at all.
    pub(super) fn truncation(&self) -> Result<Truncation, String> {
        if self.top_k.is_none() && self.top_p.is_none() && self.min_p.is_none() {
            return Err("`truncation` holds no transform; expected top_k, top_p or min_p".into());
        }
        let share = |name: &str, value: Option<f64>| {
            let share = value.map(|v| v.to_string().parse::<Share>());
            share.transpose().map_err(|e| format!("{name}: {e}"))
        };
        let top_k = self.top_k.map(|k| k.to_string().parse::<TopK>());
        Ok(Truncation {
            top_k: top_k.transpose().map_err(|e| format!("top_k: {e}"))?,
            top_p: share("top_p", self.top_p)?,
            min_p: share("min_p", self.min_p)?,
        })
    }

    /// Which weights keep their mass. Nothing is sorted: an id's rank is the number of ids that come
    /// before it, and the mass before it is their sum.
    fn keeps(&self, logits: &[f32], weights: &[f64]) -> Vec<bool> {
        let before =
            |a: usize, b: usize| logits[a] > logits[b] || (logits[a] == logits[b] && a < b);
        let ids = 0..weights.len();
        let mut kept = vec![true; weights.len()];
        if let Some(k) = self.top_k {
            for id in ids.clone() {
                kept[id] = ids.clone().filter(|other| before(*other, id)).count() < k;
            }
        }
        if let Some(p) = self.top_p {
            let held: Vec<usize> = ids.clone().filter(|id| kept[*id]).collect();
            let total: f64 = held.iter().map(|id| weights[*id]).sum();
            for id in &held {
                let others = held.iter().filter(|other| before(**other, *id));
                let mass_before: f64 = others.map(|other| weights[*other]).sum();
                kept[*id] = mass_before < p * total;
            }
        }
        if let Some(share) = self.min_p {
            let largest = ids.clone().map(|id| weights[id]).fold(0.0, f64::max);
            ids.for_each(|id| kept[id] = kept[id] && weights[id] / largest >= share);
        }
        kept
    }
}

/// softmax(`choosable` / T), truncated and zero-padded to `len`, with the platform's exponential in one
/// serial sum.
///
/// # Errors
/// A row too long to be ranked here.
pub(super) fn independent(
    choosable: &[f32],
    temperature: f64,
    truncation: Option<TruncationSpec>,
    len: usize,
) -> Result<Vec<f64>, String> {
    let max = choosable.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let mut p: Vec<f64> =
        choosable.iter().map(|z| ((f64::from(*z) - f64::from(max)) / temperature).exp()).collect();
    if let Some(truncation) = truncation {
        if choosable.len() > LIMIT_TRUNCATED_IDS {
            let found = choosable.len();
            return Err(format!(
                "truncation is checked up to {LIMIT_TRUNCATED_IDS} ids, found {found}"
            ));
        }
        let kept = truncation.keeps(choosable, &p);
        p.iter_mut().zip(kept).filter(|(_, kept)| !kept).for_each(|(w, _)| *w = 0.0);
    }
    let total: f64 = p.iter().sum();
    p.iter_mut().for_each(|w| *w /= total);
    p.resize(len, 0.0);
    Ok(p)
}
