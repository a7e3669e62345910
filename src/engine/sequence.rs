//! A sequence: state and position of one token stream.

use super::SequenceError;
use super::meter::{Charge, Meter};
use crate::backend::{DeviceModel, LiveState, State, StateTensor};
use crate::units::mutant;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

static NEXT_ID: AtomicU64 = AtomicU64::new(1);

/// What an engine's sequences share with it.
#[derive(Debug)]
pub(super) struct Home {
    pub(super) model: Box<dyn DeviceModel>,
    pub(super) meter: Arc<Meter>,
}

/// State and position of one token stream, owned by its user, executed by its engine.
#[derive(Debug)]
pub struct Sequence {
    pub(super) home: Arc<Home>,
    id: u64,
    generation: u64,
    pub(super) valid: bool,
    pub(super) state: Box<dyn State>,
    pub(super) charge: Charge,
    checkpoint: Weak<()>,
}

/// The state of a sequence at one position, to return to.
///
/// Valid for the sequence it was taken from, until that is reset. Dropping it releases it.
#[derive(Debug)]
pub struct SequenceCheckpoint {
    sequence: u64,
    generation: u64,
    state: Box<dyn State>,
    _charge: Charge,
    _alive: Arc<()>,
}

impl SequenceCheckpoint {
    /// Tokens consumed when it was taken.
    pub fn len_tokens(&self) -> usize {
        self.state.len_tokens()
    }

    /// Gives it up, so that the next one may be taken.
    pub fn release(self) {}
}

impl Sequence {
    pub(super) fn new(home: &Arc<Home>) -> Result<Sequence, SequenceError> {
        let charge = home.meter.charge(home.model.new_state_bytes())?;
        Ok(Sequence::from_parts(home, home.model.new_state(), charge))
    }

    fn from_parts(home: &Arc<Home>, state: Box<dyn State>, charge: Charge) -> Sequence {
        Sequence {
            home: Arc::clone(home),
            id: NEXT_ID.fetch_add(1, Ordering::Relaxed),
            generation: 0,
            valid: true,
            state,
            charge,
            checkpoint: Weak::new(),
        }
    }

    /// Tokens consumed: the position of the next token.
    pub fn len_tokens(&self) -> usize {
        self.state.len_tokens()
    }

    /// Whether no token has been consumed.
    pub fn is_empty(&self) -> bool {
        self.len_tokens() == 0
    }

    /// Whether the sequence can be executed (a failed forward makes it invalid until reset).
    pub fn is_valid(&self) -> bool {
        self.valid
    }

    /// Bytes that the sequence accounts for.
    pub fn size_bytes(&self) -> u64 {
        self.charge.bytes()
    }

    /// Forgets the tokens from `len_tokens` on, exactly and without replay.
    ///
    /// # Errors
    /// When gated-delta-net history does not reach back that far; nothing changes then.
    pub fn truncate(&mut self, len_tokens: usize) -> Result<(), SequenceError> {
        self.check_valid()?;
        self.state.truncate(len_tokens).map_err(|e| SequenceError::Truncate {
            target_tokens: len_tokens,
            reason: e.to_string(),
        })?;
        if !mutant!("truncate_keeps_charge") {
            self.charge.shrink_to(self.state.size_bytes());
        }
        Ok(())
    }

    /// Remembers the present state. At most one checkpoint of a sequence lives at a time.
    ///
    /// # Errors
    /// When one is live already, the sequence is invalid, or memory is short.
    pub fn checkpoint(&mut self) -> Result<SequenceCheckpoint, SequenceError> {
        self.check_valid()?;
        if self.checkpoint.strong_count() > 0 {
            let reason = "another checkpoint of the sequence is live; release it first".to_owned();
            return Err(SequenceError::Checkpoint { reason });
        }
        let charge = self.home.meter.charge(self.state.size_bytes())?;
        let alive = Arc::new(());
        self.checkpoint = Arc::downgrade(&alive);
        Ok(SequenceCheckpoint {
            sequence: self.id,
            generation: self.generation,
            state: self.state.fork(),
            _charge: charge,
            _alive: alive,
        })
    }

    /// Returns to a checkpoint, which stays valid. Also mends a sequence that a failed forward made
    /// invalid.
    ///
    /// # Errors
    /// When the checkpoint is of another sequence or from before a reset; nothing changes then.
    pub fn restore(&mut self, checkpoint: &SequenceCheckpoint) -> Result<(), SequenceError> {
        let reason = if checkpoint.sequence != self.id {
            "it was taken from another sequence"
        } else if checkpoint.generation != self.generation {
            "the sequence was reset since it was taken"
        } else {
            let bytes = checkpoint.state.size_bytes();
            self.charge.grow(bytes.saturating_sub(self.charge.bytes()))?;
            self.charge.shrink_to(bytes);
            if !mutant!("restore_keeps_state") {
                self.state = checkpoint.state.fork();
            }
            self.valid = true;
            return Ok(());
        };
        Err(SequenceError::Checkpoint { reason: reason.to_owned() })
    }

    /// An independent sequence with the same past.
    ///
    /// # Errors
    /// When the sequence is invalid or memory is short.
    pub fn fork(&self) -> Result<Sequence, SequenceError> {
        self.check_valid()?;
        let charge = self.home.meter.charge(self.state.size_bytes())?;
        Ok(Sequence::from_parts(&self.home, self.state.fork(), charge))
    }

    /// Back to an empty, valid sequence; outstanding checkpoints become stale.
    pub fn reset(&mut self) {
        self.state = self.home.model.new_state();
        self.charge.shrink_to(self.state.size_bytes());
        self.generation += u64::from(!mutant!("reset_keeps_checkpoints"));
        self.valid = true;
        self.checkpoint = Weak::new();
    }

    /// Gives the sequence up and returns its memory.
    pub fn release(self) {}

    /// Recurrent and convolution states, materialised: `layers.{i}.recurrent` as
    /// `[value_heads, key_dim, value_dim]`, `layers.{i}.conv` as `[channels, taps − 1]`, oldest
    /// first.
    ///
    /// # Errors
    /// When the sequence is invalid.
    pub fn inspect(&self) -> Result<Vec<StateTensor>, SequenceError> {
        self.check_valid()?;
        Ok(self.state.inspect())
    }

    /// Everything that later tokens can read: what two executions must agree on bit for bit.
    ///
    /// # Errors
    /// When the sequence is invalid.
    pub fn live(&self) -> Result<Vec<LiveState>, SequenceError> {
        self.check_valid()?;
        Ok(self.state.live())
    }

    pub(super) fn check_valid(&self) -> Result<(), SequenceError> {
        if self.valid { Ok(()) } else { Err(SequenceError::Invalid) }
    }
}
