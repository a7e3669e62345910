//! What a soak left behind, against what the gate allows.

use super::requests::Counts;
use crate::harness::kind::Outcome;
use std::sync::Arc;

/// What was seen.
#[derive(Clone, Debug, Default)]
pub(super) struct Seen {
    /// What the traffic did.
    pub(super) counts: Counts,
    /// Answers to the same request, in order: digests of its logits.
    pub(super) answers: Vec<Arc<str>>,
    /// How long each took, in milliseconds.
    pub(super) latencies_ms: Vec<f64>,
    /// Bytes of sequences once all were dropped.
    pub(super) left_bytes: u64,
    /// Resident memory after warming up, and at the end; `None` where the system does not tell.
    pub(super) resident_bytes: Option<(u64, u64)>,
}

/// What is allowed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    pub(super) resident_growth_bytes: u64,
    pub(super) latency_ratio: f64,
}

/// Answers that a trend can be seen in.
pub(super) const LEAST_ANSWERS: usize = 9;

impl Seen {
    /// The fastest answer of the last third against the fastest of the first. The fastest one is
    /// what the work takes; other load on the machine can only slow an answer down.
    pub(super) fn latency_ratio(&self) -> f64 {
        let third = (self.latencies_ms.len() / 3).max(1);
        let fastest = |part: &[f64]| part.iter().copied().fold(f64::INFINITY, f64::min);
        let last = self.latencies_ms.len().saturating_sub(third);
        fastest(&self.latencies_ms[last..])
            / fastest(&self.latencies_ms[..third.min(self.latencies_ms.len())])
    }

    /// Everything that does not hold.
    pub(super) fn problems(&self, limits: Limits) -> Vec<String> {
        let mut found = Vec::new();
        let Counts { cancelled, forks, refused, recomputed, .. } = self.counts;
        let kinds = [
            ("cancellation", cancelled),
            ("fork", forks),
            ("refusal", refused),
            ("recomputation", recomputed),
        ];
        for (kind, _) in kinds.iter().filter(|(_, count)| *count == 0) {
            found.push(format!("the traffic held no {kind}: nothing is known of one"));
        }
        if self.answers.len() < LEAST_ANSWERS {
            found.push(format!(
                "only {} answers came in that time, {LEAST_ANSWERS} are needed",
                self.answers.len()
            ));
        } else {
            let ratio = self.latency_ratio();
            // Written so that NaN does not pass.
            let steady = ratio <= limits.latency_ratio;
            if !steady {
                found.push(format!(
                    "latency grows: the fastest answer of the last third took {ratio:.2} times the \
                     fastest of the first, allowed is {}",
                    limits.latency_ratio
                ));
            }
        }
        if let Some(at) = self.answers.iter().position(|a| *a != self.answers[0]) {
            found.push(format!("answer {} to the same request has other bits", at + 1));
        }
        if self.left_bytes > 0 {
            found.push(format!("{} bytes of dropped sequences are left", self.left_bytes));
        }
        if let Some((before, after)) = self.resident_bytes {
            let growth = after.saturating_sub(before);
            if growth > limits.resident_growth_bytes {
                found.push(format!(
                    "resident memory grew by {growth} bytes, allowed are {}",
                    limits.resident_growth_bytes
                ));
            }
        }
        found
    }

    /// The numbers as evidence.
    pub(super) fn evidence(&self, outcome: Outcome) -> Outcome {
        let outcome = outcome
            .with("requests", self.counts.requests)
            .with("tokens", self.counts.tokens)
            .with("cancelled", self.counts.cancelled)
            .with("forks", self.counts.forks)
            .with("refused", self.counts.refused)
            .with("recomputed", self.counts.recomputed)
            .with("most_sequence_bytes", self.counts.most_bytes)
            .with("answers", self.answers.len())
            .with(
                "answer_digest",
                self.answers.first().map_or_else(String::new, ToString::to_string),
            )
            .with("left_bytes", self.left_bytes)
            .number("latency_ratio", self.latency_ratio());
        match self.resident_bytes {
            Some((before, after)) => {
                outcome.with("resident_bytes_before", before).with("resident_bytes_after", after)
            }
            None => outcome.with("resident_bytes", "unavailable: the system does not tell"),
        }
    }
}
