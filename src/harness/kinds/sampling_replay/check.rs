//! The checks, over a subject that tests replace by a defective one.

use super::command;
use super::spec::Check;
use crate::backend::cpu::sample;
use crate::generation::scripted::{Line, ScriptedModel};
use crate::generation::{
    Choice, GenerateError, Generated, Model, Request, Sampler, Sampling, Seed, Temperature,
    Truncation, generate,
};
use crate::harness::kinds::logits_source::LogitsSource;
use crate::units::{SplitMix64, unit_from_word};
use std::ops::ControlFlow;

type Receive<'a> = &'a mut dyn FnMut(&Choice) -> ControlFlow<()>;

/// The parts of the product under test.
pub(super) struct Subject {
    pub(super) words: fn(seed: u64, count: usize) -> Vec<u64>,
    pub(super) select: fn(logits: &[f32], temperature: f64, unit: f64) -> Result<u32, String>,
    pub(super) sampler: fn(Sampling, vocab: usize) -> Sampler,
    pub(super) generate:
        fn(&dyn Model, &Request<'_>, Receive<'_>) -> Result<Generated, GenerateError>,
    pub(super) temperature: fn(&str) -> Result<f64, String>,
    pub(super) seed: fn(&str) -> Result<u64, String>,
}

impl Subject {
    pub(super) const PRODUCT: Subject = Subject {
        words: |seed, count| {
            let mut rng = SplitMix64::new(seed);
            (0..count).map(|_| rng.next_word()).collect()
        },
        select: |logits, temperature, unit| {
            sample(logits, temperature, || unit).map_err(|e| e.to_string())
        },
        sampler: |sampling, vocab| Sampler::new(sampling, vocab, vocab),
        generate: |model, request, receive| generate(model, request, receive),
        temperature: |text| {
            text.parse()
                .map(Temperature::value)
                .map_err(|e: crate::generation::TemperatureError| e.to_string())
        },
        seed: |text| {
            text.parse().map(|s: Seed| s.0).map_err(|e: crate::generation::SeedError| e.to_string())
        },
    };
}

impl Check {
    /// What was found right, or what was expected and found instead.
    pub(super) fn run(&self, subject: &Subject) -> Result<String, String> {
        match self {
            Check::Words { seed, expected } => {
                let found = (subject.words)(*seed, expected.len());
                equal("words", &expected.to_vec(), &found)?;
                Ok(format!("{} words", expected.len()))
            }
            Check::Select { logits, temperature, word, id } => {
                let unit = unit_from_word(*word);
                let found = (subject.select)(&logits.row()?, *temperature, unit)?;
                equal(&format!("the id for u = {unit:e}"), id, &found)?;
                Ok(format!("id {id} for u = {unit:e}"))
            }
            Check::Replay { logits, temperature, seed, tokens, log_probs } => {
                let expected_log_probs = log_probs.as_ref().map(|l| l.to_vec());
                replay(subject, logits, *temperature, *seed, tokens, expected_log_probs)
            }
            Check::Parity { ids, tokens, temperature, seed } => {
                parity(subject, *ids, *tokens, *temperature, *seed)
            }
            Check::RefuseRow { logits, vocab, error } => {
                let logits = row_of_text(logits)?;
                let mut sampler = (subject.sampler)(sampling(1.0, 0)?, *vocab);
                let refusal = match sampler.choose(&logits, false) {
                    Ok(choice) => {
                        return Err(format!("expected a refusal, found id {}", choice.id));
                    }
                    Err(refusal) => refusal.to_string(),
                };
                says("the refusal", &refusal, error)?;
                equal("random words drawn", &0, &sampler.words_drawn())?;
                Ok(refusal)
            }
            Check::RefuseText { temperature, seed, error } => {
                let result = match (temperature, seed) {
                    (Some(text), _) => (subject.temperature)(text).map(|t| format!("{t:e}")),
                    (None, Some(text)) => (subject.seed)(text).map(|s| s.to_string()),
                    (None, None) => return Err("nothing to refuse".into()),
                };
                match result {
                    Ok(value) => Err(format!("expected a refusal, found the value {value}")),
                    Err(refusal) => says("the refusal", &refusal, error).map(|()| refusal),
                }
            }
            Check::AcceptText { temperature, seed } => {
                if let Some((text, value)) = temperature {
                    let found = (subject.temperature)(text)?;
                    equal("the temperature's bits", &value.to_bits(), &found.to_bits())?;
                }
                if let Some((text, value)) = seed {
                    equal("the seed", value, &(subject.seed)(text)?)?;
                }
                Ok("accepted exactly".into())
            }
            Check::Command { args, exit, stderr, stderr_lacks } => {
                command::check(args, *exit, stderr, stderr_lacks.as_deref())
            }
        }
    }
}

/// A row that may hold what YAML numbers cannot.
pub(super) fn row_of_text(logits: &[String]) -> Result<Vec<f32>, String> {
    logits.iter().map(|z| z.parse().map_err(|_| format!("`{z}` is no number"))).collect()
}

fn replay(
    subject: &Subject,
    logits: &LogitsSource,
    temperature: f64,
    seed: u64,
    tokens: &[u32],
    log_probs: Option<Vec<[f64; 2]>>,
) -> Result<String, String> {
    let row = logits.row()?;
    let mut sampler = (subject.sampler)(sampling(temperature, seed)?, row.len());
    let words_per_token = u64::from(temperature != 0.0);
    let mut found = Vec::new();
    for n in 0..tokens.len() {
        let choice = sampler.choose(&row, log_probs.is_some()).map_err(|e| e.to_string())?;
        found.push(choice.id);
        let drawn = (n as u64 + 1) * words_per_token;
        equal(&format!("random words after {} tokens", n + 1), &drawn, &sampler.words_drawn())?;
        if let Some([model, sampled]) = log_probs.as_ref().map(|l| l[n]) {
            let found = choice.log_probs.ok_or("log-probabilities were asked for, none came")?;
            for (what, expected, found) in
                [("model", model, found.model), ("sampler", sampled, found.sampler)]
            {
                // NaN must not pass.
                let close = (found - expected).abs() <= 1e-12 * expected.abs().max(1.0);
                if !close {
                    return Err(format!(
                        "token {n}: expected ln p of the {what} {expected:e}, found {found:e}"
                    ));
                }
            }
        }
    }
    equal("tokens", &tokens.to_vec(), &found)?;
    Ok(format!("{} tokens, {words_per_token} random words each", tokens.len()))
}

fn parity(
    subject: &Subject,
    ids: usize,
    tokens: usize,
    temperature: f64,
    seed: u64,
) -> Result<String, String> {
    let script = (0..tokens as u64)
        .map(|n| {
            let mut rng = SplitMix64::new(seed.wrapping_add(n));
            Line::Logits((0..ids).map(|_| (8.0 * rng.next_unit()) as f32).collect())
        })
        .collect();
    let model = ScriptedModel::new(ids, tokens + 1, script);
    let request = Request {
        prompt: &[0],
        budget_tokens: tokens,
        end_tokens: &[],
        choosable_ids: ids,
        sampling: sampling(temperature, seed)?,
        log_probs: false,
    };
    let mut streamed = Vec::new();
    let mut silent = |_: &Choice| ControlFlow::Continue(());
    let first = (subject.generate)(&model, &request, &mut |choice| {
        streamed.push(choice.id);
        ControlFlow::Continue(())
    })
    .map_err(|e| e.to_string())?;
    let again = (subject.generate)(&model, &request, &mut silent).map_err(|e| e.to_string())?;
    let with_log_probs = Request { log_probs: true, ..request };
    let third =
        (subject.generate)(&model, &with_log_probs, &mut silent).map_err(|e| e.to_string())?;
    equal("tokens as they stream", &first.ids(), &streamed)?;
    equal("tokens of a second run", &first.ids(), &again.ids())?;
    equal("tokens with log-probabilities", &first.ids(), &third.ids())?;
    equal("tokens generated", &tokens, &streamed.len())?;
    // Without this, a loop that ignores its seed would pass.
    let other_seed = Request { sampling: sampling(temperature, !seed)?, ..with_log_probs };
    let other = (subject.generate)(&model, &other_seed, &mut silent).map_err(|e| e.to_string())?;
    if other.ids() == first.ids() {
        return Err(format!("seeds {seed} and {} give the same {tokens} tokens", !seed));
    }
    Ok(format!("{tokens} tokens, three times the same"))
}

fn sampling(temperature: f64, seed: u64) -> Result<Sampling, String> {
    let temperature = Temperature::new(temperature).map_err(|e| e.to_string())?;
    Ok(Sampling { temperature, seed: Seed(seed), truncation: Truncation::NONE })
}

fn equal<T: PartialEq + std::fmt::Debug>(
    what: &str,
    expected: &T,
    found: &T,
) -> Result<(), String> {
    if expected == found {
        Ok(())
    } else {
        Err(format!("{what}: expected {expected:?}, found {found:?}"))
    }
}

/// `found` says what it should and nothing else; where lines break does not count.
pub(super) fn says(what: &str, found: &str, expected: &str) -> Result<(), String> {
    if found.split_whitespace().eq(expected.split_whitespace()) {
        Ok(())
    } else {
        Err(format!("expected {what} to say `{expected}`, found `{}`", found.trim_end()))
    }
}
