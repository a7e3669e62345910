//! The engine as a [`Model`].

use super::{Model, Session};
use crate::engine::{Engine, RowOutput, RowWant, Sequence, SequenceError};

impl Model for Engine {
    fn vocab(&self) -> usize {
        self.descriptor().vocab
    }

    fn context_tokens(&self) -> usize {
        Engine::context_tokens(self)
    }

    fn open(&self) -> Result<Box<dyn Session + '_>, SequenceError> {
        Ok(Box::new(EngineSession { engine: self, sequence: self.sequence()? }))
    }
}

/// A sequence of an engine; dropping it returns the sequence's memory.
#[derive(Debug)]
struct EngineSession<'a> {
    engine: &'a Engine,
    sequence: Sequence,
}

impl Session for EngineSession<'_> {
    fn forward(&mut self, tokens: &[u32], want: RowWant) -> Result<RowOutput, SequenceError> {
        let output = self.engine.prefill(&mut self.sequence, tokens, want)?;
        Ok(output.rows.into_iter().next_back().unwrap_or(RowOutput::Nothing))
    }
}
