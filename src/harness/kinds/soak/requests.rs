//! Random requests: prompts, steps of several sequences at once, forks, checkpoints, truncations,
//! cancellations in the middle, and requests that must be refused.

use crate::engine::{Batch, Engine, RowOutput, RowWant, Sequence, SequenceError, Want};
use crate::units::{Hasher, SplitMix64};

/// Sequences alive at a time.
const MOST_SEQUENCES: u64 = 12;
/// Tokens of a sequence.
pub(super) const CONTEXT_TOKENS: usize = 96;

/// What was done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) requests: u64,
    pub(super) tokens: u64,
    pub(super) cancelled: u64,
    pub(super) forks: u64,
    pub(super) refused: u64,
    /// Sequences whose last row was computed again from nothing and compared.
    pub(super) recomputed: u64,
    pub(super) most_bytes: u64,
}

struct Live {
    sequence: Sequence,
    tokens: Vec<u32>,
    /// Digest of the logits of the last row.
    last: Option<String>,
}

/// The requests in flight.
pub(super) struct Traffic<'a> {
    engine: &'a Engine,
    rng: SplitMix64,
    live: Vec<Live>,
    pub(super) counts: Counts,
}

impl<'a> Traffic<'a> {
    pub(super) fn new(engine: &'a Engine, seed: u64) -> Traffic<'a> {
        Traffic { engine, rng: SplitMix64::new(seed), live: Vec::new(), counts: Counts::default() }
    }

    fn below(&mut self, n: u64) -> u64 {
        self.rng.next_word() % n.max(1)
    }

    fn tokens(&mut self, most: u64) -> Vec<u32> {
        let vocab = self.engine.descriptor().vocab as u64;
        (0..1 + self.below(most)).map(|_| self.below(vocab) as u32).collect()
    }

    /// One random action; an error is the first thing that did not hold.
    pub(super) fn act(&mut self) -> Result<(), String> {
        self.counts.requests += 1;
        match self.below(16) {
            0..4 => self.join(),
            4..10 => self.step(),
            10 => self.fork(),
            11 | 12 => self.cancel(),
            13 => self.rewind(),
            14 => self.refuse(),
            _ => self.recompute(),
        }?;
        self.counts.most_bytes = self.counts.most_bytes.max(self.engine.sequence_bytes());
        Ok(())
    }

    fn join(&mut self) -> Result<(), String> {
        if self.live.len() as u64 >= MOST_SEQUENCES {
            return self.cancel();
        }
        let sequence = self.engine.sequence().map_err(text)?;
        self.live.push(Live { sequence, tokens: Vec::new(), last: None });
        let at = self.live.len() - 1;
        let prompt = self.tokens(40);
        self.feed(&[(at, prompt)])
    }

    /// A step of several sequences; those that are full leave first.
    fn step(&mut self) -> Result<(), String> {
        self.live.retain(|l| l.tokens.len() + 8 <= CONTEXT_TOKENS);
        let mut parts = Vec::new();
        for at in 0..self.live.len() {
            if self.below(3) > 0 {
                let tokens = self.tokens(3);
                parts.push((at, tokens));
            }
        }
        if parts.is_empty() { self.join() } else { self.feed(&parts) }
    }

    fn feed(&mut self, parts: &[(usize, Vec<u32>)]) -> Result<(), String> {
        let mut batch = Batch::new();
        for (at, live) in self.live.iter_mut().enumerate() {
            if let Some((_, tokens)) = parts.iter().find(|(part, _)| *part == at) {
                batch.push(&mut live.sequence, tokens, Want::Last(RowWant::Logits));
            }
        }
        let results = self.engine.forward(&mut batch);
        for ((at, tokens), result) in parts.iter().zip(results) {
            let output = result.map_err(|e| format!("a request that fits was refused: {e}"))?;
            let live = &mut self.live[*at];
            live.tokens.extend(tokens);
            live.last = Some(digest(output.last())?);
            self.counts.tokens += tokens.len() as u64;
        }
        Ok(())
    }

    fn fork(&mut self) -> Result<(), String> {
        if self.live.is_empty() || self.live.len() as u64 >= MOST_SEQUENCES {
            return Ok(());
        }
        let at = self.below(self.live.len() as u64) as usize;
        let source = &self.live[at];
        let copy = Live {
            sequence: source.sequence.fork().map_err(text)?,
            tokens: source.tokens.clone(),
            last: source.last.clone(),
        };
        self.live.push(copy);
        self.counts.forks += 1;
        Ok(())
    }

    /// Drops a sequence wherever it stands.
    fn cancel(&mut self) -> Result<(), String> {
        if !self.live.is_empty() {
            let at = self.below(self.live.len() as u64) as usize;
            drop(self.live.swap_remove(at));
            self.counts.cancelled += 1;
        }
        Ok(())
    }

    /// Goes on and back to a checkpoint.
    fn rewind(&mut self) -> Result<(), String> {
        if self.live.is_empty() {
            return Ok(());
        }
        let at = self.below(self.live.len() as u64) as usize;
        let tokens = self.tokens(4);
        let live = &mut self.live[at];
        if live.tokens.len() + tokens.len() > CONTEXT_TOKENS {
            return Ok(());
        }
        let checkpoint = live.sequence.checkpoint().map_err(text)?;
        self.engine.prefill(&mut live.sequence, &tokens, RowWant::Greedy).map_err(text)?;
        live.sequence.restore(&checkpoint).map_err(text)?;
        if live.sequence.len_tokens() != live.tokens.len() {
            return Err("a restored sequence has another length".to_owned());
        }
        Ok(())
    }

    /// Requests that no sequence can serve; each must be refused by name and change nothing.
    fn refuse(&mut self) -> Result<(), String> {
        let vocab = self.engine.descriptor().vocab;
        let held = self.engine.sequence_bytes();
        let mut fresh = self.engine.sequence().map_err(text)?;
        let too_long = vec![1; CONTEXT_TOKENS + 1];
        let outside = [vocab as u32];
        type Refused = fn(&SequenceError) -> bool;
        let requests: [(&[u32], Refused); 3] = [
            (&[], |e| *e == SequenceError::NoTokens),
            (&outside, |e| matches!(e, SequenceError::TokenOutOfRange { .. })),
            (&too_long, |e| matches!(e, SequenceError::ContextFull { .. })),
        ];
        for (tokens, refused) in requests {
            match self.engine.prefill(&mut fresh, tokens, RowWant::Greedy) {
                Err(e) if refused(&e) => self.counts.refused += 1,
                other => {
                    let got = other.map(|_| "an answer");
                    return Err(format!(
                        "{} tokens: expected a refusal, got {got:?}",
                        tokens.len()
                    ));
                }
            }
        }
        drop(fresh);
        if self.engine.sequence_bytes() != held {
            return Err("refused requests kept memory".to_owned());
        }
        Ok(())
    }

    /// Computes a sequence again from nothing: its last row must have the same bits.
    fn recompute(&mut self) -> Result<(), String> {
        if self.live.is_empty() {
            return Ok(());
        }
        let at = self.below(self.live.len() as u64) as usize;
        let live = &self.live[at];
        let Some(expected) = &live.last else { return Ok(()) };
        let found = answer(self.engine, &live.tokens)?;
        if found != *expected {
            let n = live.tokens.len();
            return Err(format!(
                "a sequence of {n} tokens gives other bits from nothing than in the traffic"
            ));
        }
        self.counts.recomputed += 1;
        Ok(())
    }

    /// Everything in flight is dropped; what was done.
    pub(super) fn finish(self) -> Counts {
        self.counts
    }
}

/// Digest of the logits after these tokens, computed alone and from nothing.
pub(super) fn answer(engine: &Engine, tokens: &[u32]) -> Result<String, String> {
    let mut sequence = engine.sequence().map_err(text)?;
    let output = engine.prefill(&mut sequence, tokens, RowWant::Logits).map_err(text)?;
    digest(output.last())
}

fn digest(row: &RowOutput) -> Result<String, String> {
    let RowOutput::Logits(logits) = row else {
        return Err(format!("logits were asked for, {row:?} came back"));
    };
    let mut hasher = Hasher::new();
    hasher.update_f32(logits);
    Ok(hasher.finish().to_string())
}

fn text(error: SequenceError) -> String {
    error.to_string()
}
