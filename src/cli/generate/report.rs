//! What is said about a generation: before it, after it, as JSON.

use crate::backend::cpu::{SAMPLER, SAMPLER_VERSION};
use crate::generation::{Generated, Sampling, Stop, TextTokenizer};
use serde::Serialize;
use std::time::Duration;

/// How the tokens will be chosen, before the first one.
pub(super) fn sampling_line(sampling: &Sampling, seed_given: bool) -> String {
    let sampler = format!("sampler {SAMPLER} version {SAMPLER_VERSION}");
    let Sampling { temperature, seed } = sampling;
    match (temperature.is_greedy(), seed_given) {
        (true, true) => format!("temperature 0 (greedy; seed {seed} is not used), {sampler}"),
        (true, false) => format!("temperature 0 (greedy), {sampler}"),
        (false, _) => format!("temperature {temperature}, seed {seed}, {sampler}"),
    }
}

/// How long it took.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Timing {
    /// From the start of the prompt to the first token.
    pub(super) first_token: Duration,
    /// From the first token to the last one.
    pub(super) decode: Duration,
}

/// The statistics of a generation.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Statistics {
    prompt_tokens: usize,
    generated_tokens: usize,
    time_to_first_token_ms: f64,
    decode_ms: f64,
    prefill_tokens_per_second: Option<f64>,
    /// Of the tokens after the first one.
    decode_tokens_per_second: Option<f64>,
    random_words: u64,
}

impl Statistics {
    pub(super) fn new(prompt_tokens: usize, generated: &Generated, timing: Timing) -> Statistics {
        let rate = |tokens: usize, time: Duration| {
            (tokens > 0 && !time.is_zero()).then(|| tokens as f64 / time.as_secs_f64())
        };
        // A chosen end token took a forward like any other.
        let chosen =
            generated.tokens.len() + usize::from(matches!(generated.stop, Stop::EndToken(_)));
        let prefilled = if chosen > 0 { prompt_tokens } else { 0 };
        Statistics {
            prompt_tokens,
            generated_tokens: generated.tokens.len(),
            time_to_first_token_ms: timing.first_token.as_secs_f64() * 1e3,
            decode_ms: timing.decode.as_secs_f64() * 1e3,
            prefill_tokens_per_second: rate(prefilled, timing.first_token),
            decode_tokens_per_second: rate(chosen.saturating_sub(1), timing.decode),
            random_words: generated.words_drawn,
        }
    }

    /// One line for people.
    pub(super) fn line(&self, stop: &str) -> String {
        let rate = |r: Option<f64>| r.map(|r| format!(" ({r:.1} tok/s)")).unwrap_or_default();
        format!(
            "{} prompt {} in {:.2} s{}, {} generated in {:.2} s{}; {stop}",
            self.prompt_tokens,
            if self.prompt_tokens == 1 { "token" } else { "tokens" },
            self.time_to_first_token_ms / 1e3,
            rate(self.prefill_tokens_per_second),
            self.generated_tokens,
            self.decode_ms / 1e3,
            rate(self.decode_tokens_per_second),
        )
    }
}

/// Why the text ends, for people.
pub(super) fn stop_text(stop: Stop, budget: usize, tokenizer: Option<&TextTokenizer>) -> String {
    match stop {
        Stop::EndToken(id) => match tokenizer.and_then(|t| t.decode(&[id], true).ok()) {
            Some(text) => format!("ended by token {id} ({text})"),
            None => format!("ended by token {id}"),
        },
        Stop::Budget => format!("stopped at the budget of {budget}"),
        Stop::Cancelled => "interrupted".to_owned(),
    }
}

/// The product with `--json`.
#[derive(Debug, Serialize)]
pub(super) struct JsonReport<'a> {
    /// Empty where the model has no tokeniser.
    pub(super) text: &'a str,
    pub(super) ids: Vec<u32>,
    pub(super) prompt_ids: &'a [u32],
    pub(super) stop: JsonStop,
    pub(super) temperature: f64,
    /// `null` where nothing was drawn from it.
    pub(super) seed: Option<u64>,
    pub(super) sampler: &'static str,
    pub(super) sampler_version: u32,
    pub(super) policy: Option<String>,
    pub(super) device: Option<String>,
    pub(super) statistics: Statistics,
}

#[derive(Debug, Serialize)]
#[serde(tag = "reason", rename_all = "snake_case")]
pub(super) enum JsonStop {
    EndToken { id: u32 },
    Budget,
    Interrupted,
}

impl From<Stop> for JsonStop {
    fn from(stop: Stop) -> JsonStop {
        match stop {
            Stop::EndToken(id) => JsonStop::EndToken { id },
            Stop::Budget => JsonStop::Budget,
            Stop::Cancelled => JsonStop::Interrupted,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generation::{Choice, Seed, Temperature};

    #[test]
    fn the_seed_is_reported_or_said_to_be_unused() {
        let sampling = |t: &str| Sampling { temperature: t.parse().unwrap(), seed: Seed(u64::MAX) };
        let line = sampling_line(&sampling("0.7"), false);
        assert!(line.starts_with("temperature 0.7, seed 18446744073709551615, sampler "), "{line}");
        assert!(line.ends_with(" version 1"), "{line}");
        let unused = sampling_line(&sampling("-0"), true);
        assert!(unused.contains("greedy; seed 18446744073709551615 is not used"), "{unused}");
        let greedy = Sampling { temperature: Temperature::GREEDY, seed: Seed(0) };
        assert!(!sampling_line(&greedy, false).contains("seed"));
    }

    #[test]
    fn rates_leave_out_what_did_not_happen() {
        let one = Generated {
            tokens: vec![Choice { id: 1, log_probs: None }],
            stop: Stop::Budget,
            words_drawn: 1,
        };
        let first_token = Duration::from_millis(500);
        let timing = Timing { first_token, decode: Duration::ZERO };
        let line = Statistics::new(10, &one, timing).line("stopped at the budget of 1");
        assert_eq!(
            line,
            "10 prompt tokens in 0.50 s (20.0 tok/s), 1 generated in 0.00 s; stopped at the budget \
             of 1"
        );
        let none = Generated { tokens: vec![], stop: Stop::Budget, words_drawn: 0 };
        let statistics = Statistics::new(10, &none, Timing::default());
        assert_eq!(statistics.prefill_tokens_per_second, None);
    }
}
