//! What a scenario measures.

use super::Sample;
use serde::{Deserialize, Serialize};
use std::fmt;

/// A measured quantity.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    Hash,
    PartialOrd,
    Ord,
    Serialize,
    Deserialize,
    schemars::JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Metric {
    /// Tokens per second of single-token steps, of all sequences together.
    DecodeTokensPerSecond,
    /// Prompt tokens per second, the first token's selection included.
    PrefillTokensPerSecond,
    /// Milliseconds from an empty sequence to the first token.
    TimeToFirstTokenMs,
    /// Peak resident memory of the arm's process, once per launch.
    HostBytes,
    /// Milliseconds from the request to load an arm to its engine, kernels compiled or found and weights
    /// in place, once per launch.
    ReadyMs,
}

impl Metric {
    /// The snake_case name used in files and reports.
    pub fn name(self) -> &'static str {
        match self {
            Metric::DecodeTokensPerSecond => "decode_tokens_per_second",
            Metric::PrefillTokensPerSecond => "prefill_tokens_per_second",
            Metric::TimeToFirstTokenMs => "time_to_first_token_ms",
            Metric::HostBytes => "host_bytes",
            Metric::ReadyMs => "ready_ms",
        }
    }

    /// Words for tables and plots.
    pub fn label(self) -> &'static str {
        match self {
            Metric::DecodeTokensPerSecond => "decode",
            Metric::PrefillTokensPerSecond => "prefill",
            Metric::TimeToFirstTokenMs => "time to first token",
            Metric::HostBytes => "host memory, peak",
            Metric::ReadyMs => "time to a loaded engine",
        }
    }

    /// The unit a value is shown in.
    pub fn unit(self) -> &'static str {
        match self {
            Metric::DecodeTokensPerSecond | Metric::PrefillTokensPerSecond => "tokens/s",
            Metric::TimeToFirstTokenMs | Metric::ReadyMs => "ms",
            Metric::HostBytes => "MiB",
        }
    }

    /// A value in [`Metric::unit`].
    pub fn shown(self, value: f64) -> f64 {
        if self == Metric::HostBytes { value / f64::from(1 << 20) } else { value }
    }

    /// Whether more is better.
    pub fn higher_is_better(self) -> bool {
        matches!(self, Metric::DecodeTokensPerSecond | Metric::PrefillTokensPerSecond)
    }

    /// Whether there is one value per launch and none per sample.
    pub fn is_per_launch(self) -> bool {
        matches!(self, Metric::HostBytes | Metric::ReadyMs)
    }

    /// The value of one timed sample; `None` for per-launch metrics.
    pub fn of(self, sample: &Sample, point: Point) -> Option<f64> {
        let per_second = |tokens: u32, ms: f64| f64::from(tokens) / (ms / 1e3);
        match self {
            Metric::DecodeTokensPerSecond => {
                Some(per_second(point.decode_tokens * point.sequences, sample.decode_ms))
            }
            Metric::PrefillTokensPerSecond => {
                Some(per_second(point.prompt_tokens, sample.prefill_ms))
            }
            Metric::TimeToFirstTokenMs => Some(sample.prefill_ms),
            Metric::HostBytes | Metric::ReadyMs => None,
        }
    }
}

impl fmt::Display for Metric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// One workload of a sweep.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    Hash,
    PartialOrd,
    Ord,
    Serialize,
    Deserialize,
    schemars::JsonSchema,
)]
#[serde(deny_unknown_fields)]
pub struct Point {
    /// Tokens of the prompt, prefilled in one step.
    pub prompt_tokens: u32,
    /// Single-token greedy steps after the first token.
    pub decode_tokens: u32,
    /// Sequences that decode side by side, forked behind the prompt.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub sequences: u32,
}

fn one() -> u32 {
    1
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands over a reference")]
fn is_one(n: &u32) -> bool {
    *n == 1
}

impl fmt::Display for Point {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "prompt_tokens={},decode_tokens={}", self.prompt_tokens, self.decode_tokens)?;
        if self.sequences == 1 { Ok(()) } else { write!(f, ",sequences={}", self.sequences) }
    }
}
