//! The engine as a [`Model`].

use super::{Model, Session, StepEntry};
use crate::backend::DeviceKind;
use crate::engine::{Batch, Engine, RowOutput, RowWant, Sequence, SequenceError, Want};

/// Tokens of one step on the CPU at most. Small enough that an interruption of a long prompt is noticed soon,
/// large enough that weights are read once for many rows. Bits do not depend on it.
const STEP_TOKENS: usize = 128;

impl Model for Engine {
    fn vocab(&self) -> usize {
        self.descriptor().vocab
    }

    fn context_tokens(&self) -> usize {
        Engine::context_tokens(self)
    }

    fn step_tokens(&self) -> usize {
        match self.device() {
            DeviceKind::Cpu => self.chunk_tokens().min(STEP_TOKENS),
            // A GPU's matrix units want many rows, and a step takes it no longer.
            DeviceKind::Cuda => self.chunk_tokens(),
        }
    }

    fn open(&self) -> Result<Box<dyn Session + '_>, SequenceError> {
        Ok(Box::new(EngineSession { engine: self, sequence: self.sequence()? }))
    }

    fn step(&self, entries: Vec<StepEntry<'_, '_>>) -> Vec<Result<RowOutput, SequenceError>> {
        let count = entries.len();
        let mut batch = Batch::new();
        for entry in entries {
            let StepEntry { session, tokens, want } = entry;
            match session.sequence() {
                Some(sequence) => batch.push(sequence, tokens, Want::Last(want)),
                None => return vec![Err(SequenceError::ForeignEngine); count],
            }
        }
        let outputs = self.forward(&mut batch);
        let last = |result: Result<_, SequenceError>| result.map(last_row);
        outputs.into_iter().map(last).collect()
    }
}

fn last_row(output: crate::engine::Output) -> RowOutput {
    output.rows.into_iter().next_back().unwrap_or(RowOutput::Nothing)
}

/// A sequence of an engine; dropping it returns the sequence's memory.
#[derive(Debug)]
struct EngineSession<'a> {
    engine: &'a Engine,
    sequence: Sequence,
}

impl Session for EngineSession<'_> {
    fn forward(&mut self, tokens: &[u32], want: RowWant) -> Result<RowOutput, SequenceError> {
        self.engine.prefill(&mut self.sequence, tokens, want).map(last_row)
    }

    fn draws(&self) -> bool {
        self.engine.device() == DeviceKind::Cuda
    }

    fn sequence(&mut self) -> Option<&mut Sequence> {
        Some(&mut self.sequence)
    }
}
