//! What the generation loop needs of an engine.

use crate::engine::{RowOutput, RowWant, Sequence, SequenceError};
use std::fmt;

/// A model that can continue sequences of tokens.
///
/// The engine implements it; a scripted one in the tests and gates counts what the loop does.
pub trait Model {
    /// Length of a row of logits.
    fn vocab(&self) -> usize;

    /// Largest number of tokens that a sequence can hold.
    fn context_tokens(&self) -> usize;

    /// Largest number of tokens of one step, all sequences together.
    fn step_tokens(&self) -> usize {
        usize::MAX
    }

    /// Starts an empty sequence.
    ///
    /// # Errors
    /// The engine refuses it, e.g. for want of memory.
    fn open(&self) -> Result<Box<dyn Session + '_>, SequenceError>;

    /// Feeds several sequences in one step. Results are one per entry, in order; one entry's error
    /// is no other's.
    fn step(&self, entries: Vec<StepEntry<'_, '_>>) -> Vec<Result<RowOutput, SequenceError>> {
        entries.into_iter().map(|e| e.session.forward(e.tokens, e.want)).collect()
    }
}

/// One sequence of a [`Model`]. Dropping it gives back everything that it holds.
pub trait Session: fmt::Debug {
    /// Appends the tokens and gives what `want` asks of the last one.
    ///
    /// # Errors
    /// The engine refuses the tokens or fails.
    fn forward(&mut self, tokens: &[u32], want: RowWant) -> Result<RowOutput, SequenceError>;

    /// Whether it draws tokens itself ([`RowWant::Sampled`]), so that a row of logits need not travel.
    fn draws(&self) -> bool {
        false
    }

    /// The engine's sequence, where there is one.
    fn sequence(&mut self) -> Option<&mut Sequence> {
        None
    }
}

/// One sequence's part of a step.
#[derive(Debug)]
pub struct StepEntry<'e, 'm> {
    pub session: &'e mut (dyn Session + 'm),
    /// At least one.
    pub tokens: &'e [u32],
    /// Of the last token.
    pub want: RowWant,
}
