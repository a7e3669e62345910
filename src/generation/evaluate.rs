//! How well a model predicts a text: teacher-forced log-likelihood, and agreement with another.

use crate::backend::cpu::{LogitsError, Softmax64, greedy};
use crate::engine::{Batch, Engine, RowOutput, RowWant, Sequence, SequenceError, Want};
use crate::tensor::exp64;
use serde::Serialize;
use std::ops::ControlFlow;

/// Rows of logits that are held at a time, of each engine.
const STEP_ROWS: usize = 32;

/// A text cut into windows of one length without overlap. Every window is a sequence of its own, so
/// figures do not depend on where in the text a window stands, nor on how many there are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Windows {
    prefix: Vec<u32>,
    tokens: Vec<u32>,
    window_tokens: usize,
}

impl Windows {
    /// The windows of a text's `tokens`. Each begins with `prefix` (what the tokeniser puts before
    /// a text, often a BOS, often nothing), which counts towards `window_tokens` and is not scored.
    /// Without a prefix the first token of a window has no past and is not scored. A last window
    /// may be shorter.
    ///
    /// # Errors
    /// [`EvalError::Window`] or [`EvalError::ShortText`] where no token could be scored.
    pub fn new(
        prefix: Vec<u32>,
        tokens: Vec<u32>,
        window_tokens: usize,
    ) -> Result<Windows, EvalError> {
        if window_tokens < prefix.len().max(1) + 1 {
            return Err(EvalError::Window { window_tokens, prefix_tokens: prefix.len() });
        }
        let windows = Windows { prefix, tokens, window_tokens };
        match windows.scored_tokens() {
            0 => Err(EvalError::ShortText { tokens: windows.tokens.len() }),
            _ => Ok(windows),
        }
    }

    /// Tokens of the longest window, the prefix included.
    pub fn window_tokens(&self) -> usize {
        self.window_tokens
    }

    /// Tokens whose probability is measured.
    pub fn scored_tokens(&self) -> usize {
        self.iter().map(|(_, chunk)| chunk.len() - self.unscored()).sum()
    }

    /// The windows that score something: every sequence, and its part of the text.
    fn iter(&self) -> impl Iterator<Item = (Vec<u32>, &[u32])> {
        let chunks = self.tokens.chunks(self.window_tokens - self.prefix.len());
        chunks
            .filter(|chunk| chunk.len() > self.unscored())
            .map(|chunk| ([&self.prefix[..], chunk].concat(), chunk))
    }

    /// Tokens at the start of a window's text that have no past.
    fn unscored(&self) -> usize {
        usize::from(self.prefix.is_empty())
    }
}

/// What was measured.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Evaluation {
    pub windows: usize,
    pub window_tokens: usize,
    /// Tokens of the text, scored or not.
    pub text_tokens: usize,
    pub scored_tokens: usize,
    /// Mean of −ln p of the scored tokens, in nats.
    pub nll_mean: f64,
    /// exp of `nll_mean`.
    pub perplexity: f64,
    /// Share of scored tokens that had the largest logit (the lowest id on ties).
    pub top1_accuracy: f64,
    /// Against another execution of the same windows, where there is one.
    pub agreement: Option<Agreement>,
}

/// How an execution differs from a reference.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Agreement {
    /// `nll_mean` of the reference.
    pub reference_nll_mean: f64,
    /// `nll_mean` minus that of the reference.
    pub nll_delta: f64,
    /// Share of rows in which both have the largest logit at the same id.
    pub top1_agreement: f64,
    /// Root of the mean squared difference of logits, over all scored rows and ids.
    pub logit_rms: f64,
    /// Largest difference of a logit.
    pub logit_max_abs: f64,
    /// Mean of KL(reference ‖ this) over the scored rows, in nats.
    pub kl_mean: f64,
}

/// Why nothing was measured.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum EvalError {
    #[error(
        "a window of {window_tokens} tokens scores none (its first {prefix_tokens} are the \
         tokeniser's own); give at least {}",
        prefix_tokens.max(&1) + 1
    )]
    Window { window_tokens: usize, prefix_tokens: usize },
    #[error("the text has {tokens} tokens; expected enough to score one")]
    ShortText { tokens: usize },
    #[error(
        "windows of {window_tokens} tokens do not fit the context of {context_tokens}; give a \
         shorter window"
    )]
    Context { window_tokens: usize, context_tokens: usize },
    #[error("the models have different vocabularies: {vocab} and {reference_vocab} ids")]
    Vocabulary { vocab: usize, reference_vocab: usize },
    #[error("the engine failed: {0}")]
    Engine(#[from] SequenceError),
    #[error("window {window}, token {token}: {source}")]
    Logits { window: usize, token: usize, source: LogitsError },
    #[error("interrupted")]
    Interrupted,
}

/// Measures an engine on the windows of a text, and its agreement with `reference` where there is
/// one. `progress` gets the scored tokens so far and of all; breaking ends the evaluation.
///
/// # Numerics
/// Log-probabilities are those of the sampler at T = 1 ([`Softmax64`]: FP64 over FP32 logits). All
/// sums are FP64, in the order of the text, so the figures of a policy with fixed bits are fixed.
///
/// # Errors
/// [`EvalError`].
pub fn evaluate(
    engine: &Engine,
    windows: &Windows,
    reference: Option<&Engine>,
    progress: &mut dyn FnMut(usize, usize) -> ControlFlow<()>,
) -> Result<Evaluation, EvalError> {
    let vocab = engine.descriptor().vocab;
    for engine in std::iter::once(engine).chain(reference) {
        let context_tokens = engine.context_tokens();
        if windows.window_tokens > context_tokens {
            let window_tokens = windows.window_tokens;
            return Err(EvalError::Context { window_tokens, context_tokens });
        }
        let reference_vocab = engine.descriptor().vocab;
        if reference_vocab != vocab {
            return Err(EvalError::Vocabulary { vocab, reference_vocab });
        }
    }
    let total = windows.scored_tokens();
    let mut sums = Sums::default();
    let mut count = 0;
    for (window, (ids, chunk)) in windows.iter().enumerate() {
        let first = ids.len() - chunk.len() + windows.unscored();
        let mut tested = Rows::new(engine, &ids, first)?;
        let mut other = reference.map(|r| Rows::new(r, &ids, first)).transpose()?;
        for (token, target) in ids.iter().enumerate().skip(first) {
            let logits = tested.next()?;
            let against = other.as_mut().map(Rows::next).transpose()?;
            sums.add(&logits, against.as_deref(), *target).map_err(|source| EvalError::Logits {
                window,
                token,
                source,
            })?;
            if sums.rows.is_multiple_of(STEP_ROWS) && progress(sums.rows, total).is_break() {
                return Err(EvalError::Interrupted);
            }
        }
        count += 1;
    }
    let rows = sums.rows as f64;
    let nll_mean = sums.nll / rows;
    Ok(Evaluation {
        windows: count,
        window_tokens: windows.window_tokens,
        text_tokens: windows.tokens.len(),
        scored_tokens: sums.rows,
        nll_mean,
        perplexity: nll_mean.exp(),
        top1_accuracy: sums.hits as f64 / rows,
        agreement: reference.is_some().then(|| Agreement {
            reference_nll_mean: sums.reference_nll / rows,
            nll_delta: nll_mean - sums.reference_nll / rows,
            top1_agreement: sums.same as f64 / rows,
            logit_rms: (sums.squares / (rows * vocab as f64)).sqrt(),
            logit_max_abs: sums.max_abs,
            kl_mean: sums.kl / rows,
        }),
    })
}

/// The rows of logits that predict the tokens of one window from `first` on, a few at a time.
struct Rows<'a> {
    engine: &'a Engine,
    sequence: Sequence,
    ids: &'a [u32],
    /// Tokens before the first that is scored.
    first: usize,
    rows: std::vec::IntoIter<RowOutput>,
}

impl<'a> Rows<'a> {
    fn new(engine: &'a Engine, ids: &'a [u32], first: usize) -> Result<Rows<'a>, EvalError> {
        let rows = Vec::new().into_iter();
        Ok(Rows { engine, sequence: engine.sequence()?, ids, first, rows })
    }

    fn next(&mut self) -> Result<Vec<f32>, EvalError> {
        loop {
            match self.rows.next() {
                Some(RowOutput::Logits(logits)) => return Ok(logits),
                Some(_) => {}
                None => self.rows = self.step()?.into_iter(),
            }
        }
    }

    /// Feeds the next tokens; the row of token i predicts token i + 1.
    fn step(&mut self) -> Result<Vec<RowOutput>, EvalError> {
        let start = self.sequence.len_tokens();
        let end = (start + STEP_ROWS.min(self.engine.chunk_tokens())).min(self.ids.len());
        let want = |at: usize| match at + 1 >= self.first && at + 1 < self.ids.len() {
            true => RowWant::Logits,
            false => RowWant::Nothing,
        };
        let wants = (start..end).map(want).collect();
        let mut batch = Batch::new();
        batch.push(&mut self.sequence, &self.ids[start..end], Want::Rows(wants));
        let output = self.engine.forward(&mut batch).swap_remove(0)?;
        Ok(output.rows)
    }
}

#[derive(Default)]
struct Sums {
    rows: usize,
    nll: f64,
    hits: usize,
    reference_nll: f64,
    same: usize,
    squares: f64,
    max_abs: f64,
    kl: f64,
}

impl Sums {
    fn add(
        &mut self,
        logits: &[f32],
        reference: Option<&[f32]>,
        target: u32,
    ) -> Result<(), LogitsError> {
        let softmax = Softmax64::new(logits, 1.0)?;
        let best = greedy(logits)?;
        self.rows += 1;
        self.nll -= softmax.log_prob(target)?;
        self.hits += usize::from(best == target);
        let Some(reference) = reference else { return Ok(()) };
        let expected = Softmax64::new(reference, 1.0)?;
        self.reference_nll -= expected.log_prob(target)?;
        self.same += usize::from(greedy(reference)? == best);
        // ln p = z + shift, so that the logarithm of each sum is taken once.
        let shift = softmax.log_prob(0)? - f64::from(logits[0]);
        let expected_shift = expected.log_prob(0)? - f64::from(reference[0]);
        for (x, y) in logits.iter().zip(reference) {
            let (x, y) = (f64::from(*x), f64::from(*y));
            self.squares += (x - y) * (x - y);
            self.max_abs = self.max_abs.max((x - y).abs());
            let log_p = y + expected_shift;
            self.kl += exp64(log_p) * (log_p - (x + shift));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_score_what_has_a_past() {
        let text = |n: u32| (0..n).collect::<Vec<u32>>();
        let plain = Windows::new(vec![], text(10), 4).unwrap();
        assert_eq!(plain.scored_tokens(), 3 + 3 + 1);
        assert_eq!(plain.iter().map(|(ids, _)| ids.len()).collect::<Vec<_>>(), [4, 4, 2]);
        // A last window of one token scores nothing and is left out.
        assert_eq!(Windows::new(vec![], text(9), 4).unwrap().iter().count(), 2);
        let with_bos = Windows::new(vec![7], text(7), 4).unwrap();
        assert_eq!(with_bos.scored_tokens(), 7);
        let sequences: Vec<_> = with_bos.iter().map(|(ids, _)| ids).collect();
        assert_eq!(sequences, [vec![7, 0, 1, 2], vec![7, 3, 4, 5], vec![7, 6]]);
        assert!(matches!(Windows::new(vec![], text(9), 1), Err(EvalError::Window { .. })));
        assert!(matches!(Windows::new(vec![7], vec![], 4), Err(EvalError::ShortText { .. })));
        let error = Windows::new(vec![7], text(9), 1).unwrap_err().to_string();
        assert!(error.ends_with("give at least 2"), "{error}");
    }

    /// The mean over a prompt's rows of −ln p of the next token, from the logits that transformers gave.
    #[test]
    fn a_prompt_is_as_likely_as_the_committed_logits_say() {
        use crate::engine::EngineOptions;
        use crate::weights::Model;
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/llama");
        let json = std::fs::read_to_string(folder.join("reference.json")).unwrap();
        let json: serde_json::Value = serde_json::from_str(&json).unwrap();
        let prompts = json["prompts"].as_array().unwrap();
        let prompt = prompts.iter().find(|p| p["name"] == "p150").unwrap();
        let ids: Vec<u32> = serde_json::from_value(prompt["ids"].clone()).unwrap();
        let bytes = std::fs::read(folder.join("reference.safetensors")).unwrap();
        let tensors = safetensors::SafeTensors::deserialize(&bytes).unwrap();
        let logits = tensors.tensor("logits.p150.f32").unwrap();
        let values = logits.data().chunks_exact(4);
        let values: Vec<f64> =
            values.map(|b| f64::from(f32::from_le_bytes(b.try_into().unwrap()))).collect();
        let rows = values.chunks_exact(values.len() / ids.len());
        let nll: Vec<f64> = rows
            .zip(&ids[1..])
            .map(|(row, next)| row.iter().map(|z| z.exp()).sum::<f64>().ln() - row[*next as usize])
            .collect();
        let expected = nll.iter().sum::<f64>() / nll.len() as f64;

        let model = Model::open(&folder).unwrap();
        let weights = model.checkpoint.load(&model.descriptor).unwrap();
        let options = EngineOptions::with_policy(crate::backend::Policy::F32);
        let engine = Engine::new(model.descriptor.into(), &weights, &options).unwrap();
        let windows = Windows::new(vec![], ids.clone(), ids.len()).unwrap();
        let found =
            evaluate(&engine, &windows, None, &mut |_, _| ControlFlow::Continue(())).unwrap();
        assert_eq!(found.scored_tokens, ids.len() - 1);
        assert!((found.nll_mean - expected).abs() < 1e-5, "{} {expected}", found.nll_mean);
    }

    #[test]
    fn sums_are_those_of_the_definitions() {
        // softmax [1/4, 3/4] against [1/2, 1/2].
        let mut sums = Sums::default();
        let tested = [0.0f32, 3f32.ln()];
        sums.add(&tested, Some(&[0.0, 0.0]), 0).unwrap();
        assert!((sums.nll - 4f64.ln()).abs() < 1e-7);
        assert!((sums.reference_nll - 2f64.ln()).abs() < 1e-12);
        assert_eq!((sums.hits, sums.same), (0, 0), "1 here, 0 there: the lowest of equal ids");
        let kl = 0.5 * (0.5f64 / 0.25).ln() + 0.5 * (0.5f64 / 0.75).ln();
        assert!((sums.kl - kl).abs() < 1e-7, "{}", sums.kl);
        assert!((sums.squares.sqrt() - 3f64.ln()).abs() < 1e-6);
        assert!(sums.add(&[0.0, f32::NAN], None, 0).is_err());
    }
}
