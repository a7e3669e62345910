//! The rule by which a result is admitted.

use super::{Metric, Point};
use serde::{Deserialize, Serialize};
use std::fmt;

/// What the device at hand is expected to decide.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Decision {
    /// The interval clears every rule.
    Admit,
    /// The interval lies on the wrong side of a rule.
    Decline,
    /// Neither after the last look.
    Inconclusive,
    /// The measurement cannot be used, for a stated reason.
    Invalid,
}

impl fmt::Display for Decision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Decision::Admit => "admit",
            Decision::Decline => "decline",
            Decision::Inconclusive => "inconclusive",
            Decision::Invalid => "invalid",
        })
    }
}

/// When the result is admitted.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AdmitWhen {
    /// Every one of these rules must hold.
    #[schemars(length(min = 1))]
    pub all: Vec<Rule>,
}

/// A threshold for the ratio candidate / baseline of one metric.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    /// The metric whose ratio counts.
    pub ratio: Metric,
    /// The lower confidence bound must reach this ratio; an upper bound below it declines.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lower_bound_at_least: Option<f64>,
    /// The upper confidence bound must not exceed this ratio; a lower bound above it declines.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upper_bound_at_most: Option<f64>,
    /// Only at these points of the sweep (default: at every one).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<At>,
    /// Only for this candidate (default: for every one).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arm: Option<String>,
}

/// A part of a sweep.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct At {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt_tokens: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decode_tokens: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sequences: Option<u32>,
}

impl At {
    /// Whether the point belongs to this part.
    pub fn includes(&self, point: Point) -> bool {
        self.prompt_tokens.is_none_or(|t| t == point.prompt_tokens)
            && self.decode_tokens.is_none_or(|t| t == point.decode_tokens)
            && self.sequences.is_none_or(|n| n == point.sequences)
    }
}

impl Rule {
    /// Whether the rule speaks about this candidate at this point.
    pub fn applies(&self, arm: &str, point: Point) -> bool {
        self.arm.as_deref().is_none_or(|a| a == arm) && self.at.is_none_or(|at| at.includes(point))
    }
}

impl fmt::Display for Rule {
    /// `decode_tokens_per_second: lower bound of the ratio ≥ 1.25 at prompt_tokens=128`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:", self.ratio)?;
        if let Some(t) = self.lower_bound_at_least {
            write!(f, " lower bound of the ratio ≥ {t}")?;
        }
        if let Some(t) = self.upper_bound_at_most {
            let and = if self.lower_bound_at_least.is_some() { "," } else { "" };
            write!(f, "{and} upper bound of the ratio ≤ {t}")?;
        }
        if let Some(at) = self.at {
            let axes = [
                ("prompt_tokens", at.prompt_tokens),
                ("decode_tokens", at.decode_tokens),
                ("sequences", at.sequences),
            ];
            let given: Vec<String> =
                axes.iter().filter_map(|(k, v)| v.map(|v| format!("{k}={v}"))).collect();
            write!(f, " at {}", given.join(","))?;
        }
        if let Some(arm) = &self.arm {
            write!(f, " for {arm}")?;
        }
        Ok(())
    }
}
