//! Whether a model's text holds up: no repetition, and no token far into a text that it finds less
//! likely than those near its beginning.

use crate::harness::kind::Outcome;

/// Tokens of a window over which the likelihood is averaged.
pub(super) const WINDOW_TOKENS: usize = 128;
/// Tokens at the start of a text that no context helps with yet.
const SETTLING_TOKENS: usize = 32;
/// Length of the runs of tokens that are counted.
const GRAM: usize = 4;

/// What is asked of the text.
#[derive(Clone, Copy, Debug, serde::Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Quality {
    /// Temperature of the continuation; greedy choice makes small models repeat themselves.
    pub(super) temperature: f64,
    /// Least share of the continuation's runs of four tokens that occur once only.
    pub(super) distinct_4gram_share_at_least: f64,
    /// Most that the mean negative log-likelihood of the text's last 128 tokens may exceed that of
    /// 128 tokens near its start.
    pub(super) tail_excess_at_most_nats: f64,
    /// The same of the continuation: its second half against its first, at temperature 1.
    pub(super) continuation_excess_at_most_nats: f64,
}

/// What was measured.
#[derive(Clone, Debug)]
pub(super) struct Measured {
    /// Negative log-likelihood of every token of the text but the first, in nats.
    pub(super) nll_nats: Vec<f64>,
    pub(super) continuation: Vec<u32>,
    /// Negative log-likelihood of every token of the continuation when it was chosen, in nats.
    pub(super) continuation_nats: Vec<f64>,
}

impl Measured {
    fn mean(values: &[f64]) -> f64 {
        values.iter().sum::<f64>() / values.len() as f64
    }

    /// Mean of the window near the start.
    pub(super) fn head_nats(&self) -> f64 {
        Measured::mean(&self.nll_nats[SETTLING_TOKENS..SETTLING_TOKENS + WINDOW_TOKENS])
    }

    /// Mean of the last window.
    pub(super) fn tail_nats(&self) -> f64 {
        Measured::mean(&self.nll_nats[self.nll_nats.len() - WINDOW_TOKENS..])
    }

    /// Means of the continuation's halves.
    fn halves_nats(&self) -> (f64, f64) {
        let (first, second) = self.continuation_nats.split_at(self.continuation_nats.len() / 2);
        (Measured::mean(first), Measured::mean(second))
    }

    /// Runs of four tokens that are distinct, as a share of all.
    pub(super) fn distinct_share(&self) -> f64 {
        let grams: Vec<&[u32]> = self.continuation.windows(GRAM).collect();
        let distinct: std::collections::BTreeSet<&[u32]> = grams.iter().copied().collect();
        distinct.len() as f64 / grams.len().max(1) as f64
    }

    /// Decides.
    pub(super) fn judge(&self, quality: &Quality) -> Outcome {
        let least = SETTLING_TOKENS + 2 * WINDOW_TOKENS;
        if self.nll_nats.len() < least {
            let n = self.nll_nats.len();
            return Outcome::error(format!("the text has {n} tokens, {least} are needed"));
        }
        let (head, tail) = (self.head_nats(), self.tail_nats());
        let distinct = self.distinct_share();
        // Written so that NaN does not pass.
        let steady = tail - head <= quality.tail_excess_at_most_nats;
        let (first, second) = self.halves_nats();
        let sane = second - first <= quality.continuation_excess_at_most_nats;
        let varied = distinct >= quality.distinct_4gram_share_at_least;
        let mut found = Vec::new();
        if !steady {
            found.push(format!(
                "the text's tail costs {tail:.3} nats a token against {head:.3} near its start; \
                 allowed is an excess of {}",
                quality.tail_excess_at_most_nats
            ));
        }
        if !sane {
            found.push(format!(
                "the continuation's second half costs {second:.3} nats a token against {first:.3} of \
                 its first; allowed is an excess of {}",
                quality.continuation_excess_at_most_nats
            ));
        }
        if !varied {
            found.push(format!(
                "the continuation repeats itself: {:.0}% of its runs of four tokens are distinct, \
                 expected at least {:.0}%",
                100.0 * distinct,
                100.0 * quality.distinct_4gram_share_at_least
            ));
        }
        let outcome = if found.is_empty() {
            Outcome::pass(format!(
                "{:.0}% of the runs of four tokens are distinct; {tail:.3} nats a token at the end \
                 of the text against {head:.3} near its start",
                100.0 * distinct
            ))
        } else {
            Outcome::fail(found.join("; "))
        };
        outcome
            .number("head_nats", head)
            .number("tail_nats", tail)
            .number("continuation_first_nats", first)
            .number("continuation_second_nats", second)
            .number("distinct_4gram_share", distinct)
    }
}
