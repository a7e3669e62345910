//! What is said about a generation: before it, after it, as JSON.

use crate::backend::cpu::{SAMPLER, SAMPLER_VERSION};
use crate::cli::table::count;
use crate::generation::{Generated, LogProbs, Sampling, Stop, TextTokenizer, Transform};
use serde::Serialize;
use std::time::Duration;

/// How the tokens will be chosen, before the first one.
pub(super) fn sampling_line(sampling: &Sampling, seed_given: bool) -> String {
    let sampler = format!("sampler {SAMPLER} version {SAMPLER_VERSION}");
    let Sampling { temperature, seed, truncation } = sampling;
    let transforms: Vec<String> =
        truncation.transforms().iter().map(|t| format!(", {t}")).collect();
    let transforms = transforms.concat();
    match (temperature.is_greedy(), seed_given || !transforms.is_empty()) {
        (true, true) => {
            let seed = if seed_given { format!("seed {seed}") } else { String::new() };
            let unused = format!("{seed}{transforms}");
            let unused = unused.trim_start_matches(", ");
            format!("temperature 0 (greedy; {unused} is not used), {sampler}")
        }
        (true, false) => format!("temperature 0 (greedy), {sampler}"),
        (false, _) => format!("temperature {temperature}, seed {seed}{transforms}, {sampler}"),
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
    /// `null` where none came.
    time_to_first_token_ms: Option<f64>,
    #[serde(skip)]
    prompt_ms: f64,
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
            time_to_first_token_ms: (chosen > 0).then_some(timing.first_token.as_secs_f64() * 1e3),
            prompt_ms: timing.first_token.as_secs_f64() * 1e3,
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
            "{} in {:.2} s{}, {} generated in {:.2} s{}; {stop}",
            count(self.prompt_tokens as u64, "prompt token"),
            self.prompt_ms / 1e3,
            rate(self.prefill_tokens_per_second),
            self.generated_tokens,
            self.decode_ms / 1e3,
            rate(self.decode_tokens_per_second),
        )
    }
}

/// Why the text ends, for people.
pub(super) fn stop_text(
    stop: Stop,
    budget: usize,
    stops: &[String],
    tokenizer: Option<&TextTokenizer>,
) -> String {
    match stop {
        Stop::StopString(at) => format!("ended by stop string {:?}", stops[at]),
        Stop::EndToken(id) => match tokenizer.and_then(|t| t.decode(&[id], true).ok()) {
            Some(text) => format!("ended by token {id} ({text})"),
            None => format!("ended by token {id}"),
        },
        Stop::Budget => format!("stopped at the budget of {budget}"),
        Stop::Cancelled => "interrupted".to_owned(),
    }
}

/// Several generations together; every one is counted by what ended it.
pub(super) fn together_line(all: &[Generated], prompt_tokens: usize, time: Duration) -> String {
    let generated: usize = all.iter().map(|g| g.tokens.len()).sum();
    let ended = |wanted: fn(&Stop) -> bool| all.iter().filter(|g| wanted(&g.stop)).count();
    let rate = match time.is_zero() {
        true => String::new(),
        false => format!(" ({:.1} tok/s together)", generated as f64 / time.as_secs_f64()),
    };
    let interrupted = match ended(|s| matches!(s, Stop::Cancelled)) {
        0 => String::new(),
        cut => format!(", {cut} interrupted"),
    };
    format!(
        "{} of {}, {generated} generated in {:.2} s{rate}; {} ended by an end token, {} by a stop \
         string, {} at the budget{interrupted}",
        count(all.len() as u64, "prompt"),
        count(prompt_tokens as u64, "token"),
        time.as_secs_f64(),
        ended(|s| matches!(s, Stop::EndToken(_))),
        ended(|s| matches!(s, Stop::StopString(_))),
        ended(|s| matches!(s, Stop::Budget)),
    )
}

/// The product with `--json`.
#[derive(Debug, Serialize)]
pub(super) struct JsonReport<'a> {
    /// Of several prompts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) name: Option<&'a str>,
    /// Empty where the model has no tokeniser.
    pub(super) text: String,
    pub(super) ids: Vec<u32>,
    /// One per id, where they were asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) log_probs: Option<Vec<JsonLogProbs>>,
    pub(super) prompt_ids: &'a [u32],
    /// A conversation as its template renders it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) prompt_text: Option<&'a str>,
    pub(super) stop: JsonStop<'a>,
    pub(super) temperature: f64,
    /// `null` where nothing was drawn from it.
    pub(super) seed: Option<u64>,
    /// Empty where every id keeps its mass.
    pub(super) truncation: Vec<Transform>,
    pub(super) sampler: &'static str,
    pub(super) sampler_version: u32,
    pub(super) end_tokens: &'a [u32],
    pub(super) policy: Option<String>,
    pub(super) device: Option<String>,
    /// How the model is divided over ranks.
    pub(super) placement: Option<serde_json::Value>,
    /// Of the process so far, mapped pages included; `null` where the system does not say.
    pub(super) peak_resident_bytes: Option<u64>,
    pub(super) statistics: Statistics,
}

/// Natural logarithms of probabilities of a token.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct JsonLogProbs {
    /// Of the model: T = 1, over every logit.
    model: f64,
    /// Of the sampler: T and truncation applied; 0 for greedy choice.
    sampler: f64,
}

impl JsonLogProbs {
    /// Those of all tokens; `None` if one lacks them.
    pub(super) fn of(generated: &Generated) -> Option<Vec<JsonLogProbs>> {
        let one = |l: LogProbs| JsonLogProbs { model: l.model, sampler: l.sampler };
        generated.tokens.iter().map(|t| t.log_probs.map(one)).collect()
    }
}

#[derive(Debug, Serialize)]
#[serde(tag = "reason", rename_all = "snake_case")]
pub(super) enum JsonStop<'a> {
    EndToken { id: u32 },
    StopString { text: &'a str },
    Budget,
    Interrupted,
}

impl<'a> JsonStop<'a> {
    pub(super) fn of(stop: Stop, stops: &'a [String]) -> JsonStop<'a> {
        match stop {
            Stop::EndToken(id) => JsonStop::EndToken { id },
            Stop::StopString(at) => JsonStop::StopString { text: &stops[at] },
            Stop::Budget => JsonStop::Budget,
            Stop::Cancelled => JsonStop::Interrupted,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generation::{Choice, Seed, Temperature, Truncation};

    #[test]
    fn the_seed_is_reported_or_said_to_be_unused() {
        let truncation = Truncation::NONE;
        let seed = Seed(u64::MAX);
        let sampling = |t: &str| Sampling { temperature: t.parse().unwrap(), seed, truncation };
        let line = sampling_line(&sampling("0.7"), false);
        assert!(line.starts_with("temperature 0.7, seed 18446744073709551615, sampler "), "{line}");
        assert!(line.ends_with(" version 1"), "{line}");
        let unused = sampling_line(&sampling("-0"), true);
        assert!(unused.contains("greedy; seed 18446744073709551615 is not used"), "{unused}");
        let greedy = Sampling { temperature: Temperature::GREEDY, seed: Seed(0), truncation };
        assert!(!sampling_line(&greedy, false).contains("seed"));
        let truncation = Truncation {
            top_k: Some("20".parse().unwrap()),
            min_p: Some("0.1".parse().unwrap()),
            ..truncation
        };
        let line = sampling_line(&Sampling { truncation, ..sampling("0.7") }, true);
        let transforms = "615, top_k 20 (version 1), min_p 0.1 (version 1), sampler ";
        assert!(line.contains(transforms), "{line}");
        let greedy = sampling_line(&Sampling { truncation, ..greedy }, false);
        assert!(greedy.contains("greedy; top_k 20 (version 1), min_p"), "{greedy}");
    }

    #[test]
    fn every_generation_is_counted_by_what_ended_it() {
        let one = |stop| Generated { tokens: vec![], stop, words_drawn: 0 };
        let whole = [Stop::EndToken(2), Stop::Budget, Stop::StopString(0)].map(one);
        assert_eq!(
            together_line(&whole, 30, Duration::ZERO),
            "3 prompts of 30 tokens, 0 generated in 0.00 s; 1 ended by an end token, 1 by a stop \
             string, 1 at the budget"
        );
        assert_eq!(
            together_line(&[one(Stop::Cancelled)], 1, Duration::ZERO),
            "1 prompt of 1 token, 0 generated in 0.00 s; 0 ended by an end token, 0 by a stop \
             string, 0 at the budget, 1 interrupted"
        );
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
        assert_eq!(statistics.time_to_first_token_ms, None);
    }
}
