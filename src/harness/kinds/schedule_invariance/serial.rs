//! Serial token-by-token execution, remembered by prefix.

use crate::engine::{Engine, RowWant, Sequence};
use crate::units::{Digest, Hasher};
use std::collections::{HashMap, VecDeque};

/// Positions between remembered states.
const SAVE_TOKENS: usize = 64;
/// Ends of paths kept to go on from.
const RECENT: usize = 96;

/// Digests of the logits after every prefix that was asked for.
#[derive(Debug, Default)]
pub(super) struct Serial {
    digests: HashMap<u64, Digest>,
    states: HashMap<u64, Sequence>,
    /// The ends of the paths executed last, the latest at the back.
    recent: VecDeque<(u64, Sequence)>,
}

/// The key of a prefix, extended by one token.
pub(super) fn extend(prefix: u64, token: u32) -> u64 {
    let mut x = prefix ^ (u64::from(token) + 0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// The digest of a row of logits.
pub(super) fn digest(logits: &[f32]) -> Digest {
    let mut hasher = Hasher::new();
    hasher.update_f32(logits);
    hasher.finish()
}

impl Serial {
    /// The digest of the logits after the last of `tokens`.
    pub(super) fn row(&mut self, engine: &Engine, tokens: &[u32]) -> Result<Digest, String> {
        let keys = keys(tokens);
        let key = keys[tokens.len()];
        if !self.digests.contains_key(&key) {
            let sequence = self.advance(engine, tokens, &keys)?;
            if self.recent.len() == RECENT {
                self.recent.pop_front();
            }
            self.recent.push_back((key, sequence));
        }
        Ok(self.digests[&key])
    }

    /// A sequence that consumed `tokens` one by one.
    pub(super) fn sequence(&mut self, engine: &Engine, tokens: &[u32]) -> Result<Sequence, String> {
        self.advance(engine, tokens, &keys(tokens))
    }

    fn advance(
        &mut self,
        engine: &Engine,
        tokens: &[u32],
        keys: &[u64],
    ) -> Result<Sequence, String> {
        let (start, mut sequence) = self.nearest(engine, keys)?;
        for (i, token) in tokens.iter().enumerate().skip(start) {
            let output = engine.decode(&mut sequence, *token, RowWant::Logits);
            let logits = output.map_err(|e| e.to_string())?.into_logits().ok_or("no logits")?;
            self.digests.insert(keys[i + 1], digest(&logits));
            if (i + 1).is_multiple_of(SAVE_TOKENS) {
                let copy = sequence.fork().map_err(|e| e.to_string())?;
                self.states.insert(keys[i + 1], copy);
            }
        }
        Ok(sequence)
    }
}

impl Serial {
    /// The longest prefix of which a state is held, and that state. The end of a path is taken over
    /// (its digests stay), a remembered state is copied.
    fn nearest(&mut self, engine: &Engine, keys: &[u64]) -> Result<(usize, Sequence), String> {
        for (n, key) in keys.iter().enumerate().rev() {
            if let Some(at) = self.recent.iter().rposition(|(k, _)| k == key) {
                let (_, sequence) = self.recent.remove(at).ok_or("just found")?;
                return Ok((n, sequence));
            }
            if let Some(sequence) = self.states.get(key) {
                return Ok((n, sequence.fork().map_err(|e| e.to_string())?));
            }
        }
        Ok((0, engine.sequence().map_err(|e| e.to_string())?))
    }
}

fn keys(tokens: &[u32]) -> Vec<u64> {
    let mut keys = vec![0];
    for token in tokens {
        keys.push(extend(keys[keys.len() - 1], *token));
    }
    keys
}
