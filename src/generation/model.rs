//! What the generation loop needs of an engine.

use crate::engine::{RowOutput, RowWant, SequenceError};
use std::fmt;

/// A model that can continue one sequence of tokens.
///
/// The engine implements it; a scripted one in the tests and gates counts what the loop does.
pub trait Model {
    /// Length of a row of logits.
    fn vocab(&self) -> usize;

    /// Largest number of tokens that a sequence can hold.
    fn context_tokens(&self) -> usize;

    /// Starts an empty sequence.
    ///
    /// # Errors
    /// The engine refuses it, e.g. for want of memory.
    fn open(&self) -> Result<Box<dyn Session + '_>, SequenceError>;
}

/// One sequence of a [`Model`]. Dropping it gives back everything that it holds.
pub trait Session: fmt::Debug {
    /// Appends the tokens and gives what `want` asks of the last one.
    ///
    /// # Errors
    /// The engine refuses the tokens or fails.
    fn forward(&mut self, tokens: &[u32], want: RowWant) -> Result<RowOutput, SequenceError>;
}
