//! Truncation of the distribution that tokens are drawn from: separate transforms with a name and
//! a version each, all off by default.

use crate::tensor::exp64;
use std::fmt;
use std::str::FromStr;

/// Which ids keep their mass. Applied in the order of the fields, each to what the one before left;
/// temperature comes before them. What stays is renormalised.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Truncation {
    /// The k largest logits; of equal ones the lowest ids.
    pub top_k: Option<TopK>,
    /// The smallest set of largest probabilities that together reach p.
    pub top_p: Option<Share>,
    /// Probabilities of at least this share of the largest one.
    pub min_p: Option<Share>,
}

/// A transform that was applied, for records.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct Transform {
    pub name: &'static str,
    /// Rises when the same logits and setting may keep other ids.
    pub version: u32,
    pub value: f64,
}

/// Versions of the transforms.
const TOP_K_VERSION: u32 = 1;
const TOP_P_VERSION: u32 = 1;
const MIN_P_VERSION: u32 = 1;

impl Truncation {
    /// No transform.
    pub const NONE: Truncation = Truncation { top_k: None, top_p: None, min_p: None };

    /// Whether every id keeps its mass.
    pub fn is_none(&self) -> bool {
        *self == Truncation::NONE
    }

    /// The transforms in the order in which they are applied.
    pub fn transforms(&self) -> Vec<Transform> {
        let top_k = self.top_k.map(|k| ("top_k", TOP_K_VERSION, k.0 as f64));
        let top_p = self.top_p.map(|p| ("top_p", TOP_P_VERSION, p.0));
        let min_p = self.min_p.map(|p| ("min_p", MIN_P_VERSION, p.0));
        [top_k, top_p, min_p]
            .into_iter()
            .flatten()
            .map(|(name, version, value)| Transform { name, version, value })
            .collect()
    }

    /// The ids that keep their mass, ascending; at least one.
    ///
    /// # Numerics
    /// Ids are ordered by falling logit, the lowest id first on ties. Weights are
    /// exp((z − max) / T) in FP64 ([`exp64`]); `top_p` compares their serial sum in that order with
    /// p times the serial sum of all, `min_p` each weight with its share of the largest, which is 1.
    ///
    /// `logits` are finite and not empty, `temperature` is positive.
    pub(super) fn kept(&self, logits: &[f32], temperature: f64) -> Vec<u32> {
        let mut ids: Vec<u32> = (0..logits.len() as u32).collect();
        let falling = |a: &u32, b: &u32| {
            let (x, y) = (logits[*a as usize], logits[*b as usize]);
            y.partial_cmp(&x).unwrap_or(std::cmp::Ordering::Equal).then(a.cmp(b))
        };
        if let Some(TopK(k)) = self.top_k
            && k < ids.len()
        {
            ids.select_nth_unstable_by(k - 1, falling);
            ids.truncate(k);
        }
        let max = ids.iter().map(|id| logits[*id as usize]).fold(f32::NEG_INFINITY, f32::max);
        let weight =
            |id: u32| exp64((f64::from(logits[id as usize]) - f64::from(max)) / temperature);
        if let Some(Share(p)) = self.top_p {
            ids.sort_unstable_by(falling);
            let weights: Vec<f64> = ids.iter().map(|id| weight(*id)).collect();
            let target = p * weights.iter().fold(0.0, |sum, w| sum + w);
            let mut sum = 0.0;
            let reached = weights.iter().position(|w| {
                sum += w;
                sum >= target
            });
            ids.truncate(reached.map_or(ids.len(), |at| at + 1));
        }
        if let Some(Share(share)) = self.min_p {
            ids.retain(|id| weight(*id) >= share);
        }
        ids.sort_unstable();
        ids
    }
}

/// How many ids keep their mass: at least one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TopK(usize);

/// A share in (0, 1].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Share(f64);

/// A setting of a transform was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TruncationError {
    #[error("expected a whole number of ids from 1 on, found `{0}`; leave it out to keep all")]
    Count(String),
    #[error("expected a number above 0 and up to 1, found `{0}`; leave it out to keep all")]
    Share(String),
}

impl FromStr for TopK {
    type Err = TruncationError;

    fn from_str(text: &str) -> Result<TopK, TruncationError> {
        let count = text.parse().ok().filter(|k| *k > 0);
        count.map(TopK).ok_or_else(|| TruncationError::Count(text.to_owned()))
    }
}

impl FromStr for Share {
    type Err = TruncationError;

    fn from_str(text: &str) -> Result<Share, TruncationError> {
        let share = text.parse().ok().filter(|p| *p > 0.0 && *p <= 1.0);
        share.map(Share).ok_or_else(|| TruncationError::Share(text.to_owned()))
    }
}

impl fmt::Display for Transform {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Transform { name, version, value } = self;
        match *value < 1e-4 {
            true => write!(f, "{name} {value:e} (version {version})"),
            false => write!(f, "{name} {value} (version {version})"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn truncation(top_k: Option<usize>, top_p: Option<f64>, min_p: Option<f64>) -> Truncation {
        Truncation { top_k: top_k.map(TopK), top_p: top_p.map(Share), min_p: min_p.map(Share) }
    }

    /// softmax of these at T = 1 is [1, 2, 4, 2, 1] / 10.
    fn tenths() -> Vec<f32> {
        [1.0f32, 2.0, 4.0, 2.0, 1.0].map(f32::ln).to_vec()
    }

    #[test]
    fn each_transform_keeps_what_it_says() {
        let kept = |t: Truncation| t.kept(&tenths(), 1.0);
        assert_eq!(kept(Truncation::NONE), [0, 1, 2, 3, 4]);
        assert_eq!(kept(truncation(Some(1), None, None)), [2]);
        assert_eq!(kept(truncation(Some(2), None, None)), [1, 2], "the lowest of equal ids");
        assert_eq!(kept(truncation(Some(9), None, None)), [0, 1, 2, 3, 4]);
        assert_eq!(kept(truncation(None, Some(0.3), None)), [2]);
        assert_eq!(kept(truncation(None, Some(0.41), None)), [1, 2]);
        assert_eq!(kept(truncation(None, Some(0.79), None)), [1, 2, 3]);
        assert_eq!(kept(truncation(None, Some(1.0), None)), [0, 1, 2, 3, 4]);
        assert_eq!(kept(truncation(None, None, Some(0.4))), [1, 2, 3]);
        assert_eq!(kept(truncation(None, None, Some(1.0))), [2]);
    }

    #[test]
    fn the_order_is_top_k_then_top_p_then_min_p() {
        // Of the three largest, 4/8 and 6/8 of the mass: top_p sees what top_k left.
        assert_eq!(truncation(Some(3), Some(0.7), None).kept(&tenths(), 1.0), [1, 2]);
        assert_eq!(truncation(None, Some(0.7), None).kept(&tenths(), 1.0), [1, 2, 3]);
        // At T = 1/2 the shares are squared: 1/16 and 4/16 of the largest.
        assert_eq!(truncation(None, None, Some(0.2)).kept(&tenths(), 0.5), [1, 2, 3]);
        assert_eq!(truncation(None, None, Some(0.3)).kept(&tenths(), 0.5), [2]);
    }

    #[test]
    fn extreme_temperatures_keep_the_largest() {
        for temperature in [1e-45, 1e-5] {
            let all = truncation(Some(4), Some(0.5), Some(0.5));
            assert_eq!(all.kept(&[0.0, 3.0, 3.0, 2.0], temperature), [1], "{temperature}");
        }
    }

    #[test]
    fn settings_are_refused_by_what_they_are() {
        for text in ["0", "-1", "1.5", "", "x"] {
            assert!(text.parse::<TopK>().is_err(), "{text}");
        }
        for text in ["0", "-0.1", "1.01", "nan", "inf", ""] {
            assert!(text.parse::<Share>().is_err(), "{text}");
        }
        let error = "1.01".parse::<Share>().unwrap_err().to_string();
        assert!(
            error.starts_with("expected a number above 0 and up to 1, found `1.01`"),
            "{error}"
        );
    }

    #[test]
    fn a_tiny_share_is_shown_short() {
        let shown = |p: &str| {
            let top_p = Some(p.parse().unwrap());
            Truncation { top_p, ..Truncation::NONE }.transforms()[0].to_string()
        };
        assert_eq!(shown("1e-300"), "top_p 1e-300 (version 1)");
        assert_eq!(shown("0.95"), "top_p 0.95 (version 1)");
    }
}
