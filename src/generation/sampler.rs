//! The chooser of one request: temperature, random state, the ids that may be chosen.

use super::{Seed, Temperature, Truncation};
use crate::backend::Draw;
use crate::backend::cpu::{LogitsError, Softmax64, check_logits, greedy};
use crate::units::{SplitMix64, mutant};

/// How a request chooses its tokens.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sampling {
    pub temperature: Temperature,
    /// Start of the random stream; unused at temperature 0.
    pub seed: Seed,
    /// Which ids keep their mass; without effect at temperature 0, since the largest stays.
    pub truncation: Truncation,
}

impl Sampling {
    /// The largest logit, lowest id on ties, no randomness.
    pub const GREEDY: Sampling =
        Sampling { temperature: Temperature::GREEDY, seed: Seed(0), truncation: Truncation::NONE };
}

/// A chosen token.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Choice {
    pub id: u32,
    /// Where they were asked for.
    pub log_probs: Option<LogProbs>,
}

/// Natural-log probabilities of a chosen token, computed in log space from the logits.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LogProbs {
    /// Under the model: T = 1, over every logit.
    pub model: f64,
    /// Under the sampler: T and truncation applied, over the ids that may be chosen; 0 for greedy
    /// choice.
    pub sampler: f64,
}

/// Chooses the tokens of one request.
#[derive(Clone, Debug)]
pub struct Sampler {
    temperature: Temperature,
    truncation: Truncation,
    rng: SplitMix64,
    vocab: usize,
    choosable_ids: usize,
}

impl Sampler {
    /// A sampler at the start of its random stream.
    ///
    /// `vocab` is the length of every row of logits. Only ids below `choosable_ids` are chosen:
    /// checkpoints pad their embeddings, and a row beyond the tokeniser's ids is no token.
    pub fn new(sampling: Sampling, vocab: usize, choosable_ids: usize) -> Sampler {
        Sampler {
            temperature: sampling.temperature,
            truncation: sampling.truncation,
            rng: SplitMix64::new(sampling.seed.0),
            vocab,
            choosable_ids: choosable_ids.min(vocab),
        }
    }

    /// Chooses the next token. One random word is drawn if the temperature is positive, none
    /// otherwise, and none if the row is refused.
    ///
    /// # Errors
    /// [`LogitsError`] if the row is empty, has another length than the vocabulary, or holds a
    /// value that is not finite (also among the ids that are never chosen).
    pub fn choose(&mut self, logits: &[f32], log_probs: bool) -> Result<Choice, LogitsError> {
        check_logits(logits, self.vocab)?;
        let all = mutant!("padded_ids_choosable");
        let choosable = if all { logits } else { &logits[..self.choosable_ids] };
        if mutant!("sampler_word_for_greedy") && self.temperature.is_greedy() {
            self.rng.next_word();
        }
        let (id, sampler) = if self.temperature.is_greedy() {
            (greedy(choosable)?, 0.0)
        } else if self.truncation.is_none() {
            self.draw(choosable, log_probs)?
        } else {
            // The row of the ids that keep their mass, in order of id.
            let kept = self.truncation.kept(choosable, self.temperature.value());
            let row: Vec<f32> = kept.iter().map(|id| choosable[*id as usize]).collect();
            let (at, log_prob) = self.draw(&row, log_probs)?;
            (kept[at as usize], log_prob)
        };
        let log_probs = match log_probs {
            true => Some(LogProbs { model: Softmax64::new(logits, 1.0)?.log_prob(id)?, sampler }),
            false => None,
        };
        Ok(Choice { id, log_probs })
    }

    /// The next draw, for a device to make; it becomes one with [`Sampler::drew`]. None where the
    /// choice is greedy or truncated.
    pub(super) fn next_draw(&self) -> Option<Draw> {
        let plain = !self.temperature.is_greedy() && self.truncation.is_none();
        plain.then(|| Draw {
            temperature: self.temperature.value(),
            unit: self.rng.clone().next_unit(),
            choosable_ids: self.choosable_ids,
        })
    }

    /// Takes the word that the last [`Sampler::next_draw`] showed.
    pub(super) fn drew(&mut self) {
        self.rng.next_word();
    }

    /// Draws from softmax(row / T), with the log-probability of what was drawn if it is wanted.
    fn draw(&mut self, row: &[f32], log_prob: bool) -> Result<(u32, f64), LogitsError> {
        let softmax = Softmax64::new(row, self.temperature.value())?;
        let id = softmax.select(self.rng.next_unit());
        Ok((id, if log_prob { softmax.log_prob(id)? } else { 0.0 }))
    }

    /// Random words drawn so far.
    pub fn words_drawn(&self) -> u64 {
        self.rng.drawn()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sampling(temperature: f64, seed: u64) -> Sampling {
        let temperature = Temperature::new(temperature).unwrap();
        Sampling { temperature, seed: Seed(seed), truncation: Truncation::NONE }
    }

    /// What is cut off is never drawn, the rest is renormalised, and the model's log-probability
    /// does not know of it.
    #[test]
    fn truncation_moves_the_sampler_and_not_the_model() {
        // softmax is [1, 2, 4, 1] / 8; the two largest are [1/3, 2/3].
        let logits = [1.0f32, 2.0, 4.0, 1.0].map(f32::ln);
        let truncation = Truncation { top_k: Some("2".parse().unwrap()), ..Truncation::NONE };
        let mut sampler = Sampler::new(Sampling { truncation, ..sampling(1.0, 3) }, 4, 4);
        let mut seen = [0; 4];
        for n in 1..=300 {
            let choice = sampler.choose(&logits, true).unwrap();
            assert_eq!(sampler.words_drawn(), n);
            seen[choice.id as usize] += 1;
            let found = choice.log_probs.unwrap();
            let (model, sampled) = if choice.id == 1 { (0.25f64, 1.0f64) } else { (0.5, 2.0) };
            assert!((found.model - model.ln()).abs() < 1e-6, "{found:?}");
            assert!((found.sampler - (sampled / 3.0).ln()).abs() < 1e-6, "{found:?}");
        }
        assert_eq!((seen[0], seen[3]), (0, 0));
        assert!((70..130).contains(&seen[1]), "{seen:?}");
        // Everything kept is the same row, and so the same tokens.
        let all = Truncation { top_k: Some("4".parse().unwrap()), ..Truncation::NONE };
        let mut whole = Sampler::new(Sampling { truncation: all, ..sampling(0.9, 5) }, 4, 4);
        let mut plain = Sampler::new(sampling(0.9, 5), 4, 4);
        for _ in 0..50 {
            assert_eq!(whole.choose(&logits, true), plain.choose(&logits, true));
        }
    }

    #[test]
    fn one_word_per_sampled_token_and_none_for_greedy() {
        let logits: Vec<f32> = (0..300).map(|i| (i % 17) as f32).collect();
        let mut warm = Sampler::new(sampling(0.8, 3), 300, 300);
        let mut cold = Sampler::new(sampling(0.0, 3), 300, 300);
        for n in 1..=5 {
            warm.choose(&logits, n % 2 == 0).unwrap();
            assert_eq!(warm.words_drawn(), n);
            assert_eq!(cold.choose(&logits, false).unwrap().id, 16);
        }
        assert_eq!(cold.words_drawn(), 0);
        let mut single = Sampler::new(sampling(1.0, 0), 1, 1);
        assert_eq!(single.choose(&[0.0], false).unwrap().id, 0);
        assert_eq!(single.words_drawn(), 1);
    }

    #[test]
    fn a_refused_row_leaves_the_random_stream_where_it_was() {
        let mut sampler = Sampler::new(sampling(1.0, 9), 4, 4);
        for bad in [&[f32::NAN; 4][..], &[f32::NEG_INFINITY; 4], &[], &[0.0; 3], &[0.0; 5]] {
            assert!(sampler.choose(bad, false).is_err());
        }
        assert_eq!(sampler.words_drawn(), 0);
        let mut fresh = Sampler::new(sampling(1.0, 9), 4, 4);
        assert_eq!(sampler.choose(&[0.0; 4], false), fresh.choose(&[0.0; 4], false));
    }

    #[test]
    fn ids_beyond_the_tokeniser_are_never_chosen() {
        // The padded ids have by far the largest logits.
        let logits = [0.0, 1.0, 0.5, 90.0, 95.0];
        let mut cold = Sampler::new(sampling(0.0, 0), 5, 3);
        assert_eq!(cold.choose(&logits, false).unwrap().id, 1);
        let mut warm = Sampler::new(sampling(1.0, 1), 5, 3);
        for _ in 0..200 {
            assert!(warm.choose(&logits, false).unwrap().id < 3);
        }
        assert!(warm.choose(&[0.0, 0.0, 0.0, 0.0, f32::NAN], false).is_err());
    }

    #[test]
    fn log_probabilities_of_model_and_sampler() {
        // softmax([0, ln 3]) is [1/4, 3/4] at T = 1 and [1/10, 9/10] at T = 1/2.
        let logits = [0.0, 1.098_612_3];
        let mut sampler = Sampler::new(sampling(0.5, 0), 2, 2);
        for _ in 0..20 {
            let choice = sampler.choose(&logits, true).unwrap();
            let found = choice.log_probs.unwrap();
            let (model, sampled) = if choice.id == 0 { (0.25f64, 0.1f64) } else { (0.75, 0.9) };
            assert!((found.model - model.ln()).abs() < 1e-7, "{found:?}");
            assert!((found.sampler - sampled.ln()).abs() < 1e-7, "{found:?}");
        }
        let mut cold = Sampler::new(Sampling::GREEDY, 2, 2);
        assert_eq!(cold.choose(&logits, true).unwrap().log_probs.unwrap().sampler, 0.0);
    }
}
