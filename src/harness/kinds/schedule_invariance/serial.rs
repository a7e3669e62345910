//! Serial token-by-token execution, remembered by prefix.

use crate::engine::{Engine, RowWant, Sequence};
use crate::units::Digest;
use std::collections::HashMap;

/// Positions between remembered states.
const SAVE_TOKENS: usize = 64;

/// Digests of the logits after every prefix that was asked for.
#[derive(Debug, Default)]
pub(super) struct Serial {
    digests: HashMap<u64, Digest>,
    states: HashMap<u64, Sequence>,
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
    let bytes: Vec<u8> = logits.iter().flat_map(|x| x.to_bits().to_le_bytes()).collect();
    Digest::of(&bytes)
}

impl Serial {
    /// The digest of the logits after the last of `tokens`.
    pub(super) fn row(&mut self, engine: &Engine, tokens: &[u32]) -> Result<Digest, String> {
        let keys = keys(tokens);
        let key = keys[tokens.len()];
        if !self.digests.contains_key(&key) {
            self.advance(engine, tokens, &keys)?;
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
        let saved = (0..=tokens.len()).rev().find_map(|n| Some((n, self.states.get(&keys[n])?)));
        let (start, mut sequence) = match saved {
            Some((n, sequence)) => (n, sequence.fork().map_err(|e| e.to_string())?),
            None => (0, engine.sequence().map_err(|e| e.to_string())?),
        };
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

fn keys(tokens: &[u32]) -> Vec<u64> {
    let mut keys = vec![0];
    for token in tokens {
        keys.push(extend(keys[keys.len() - 1], *token));
    }
    keys
}
