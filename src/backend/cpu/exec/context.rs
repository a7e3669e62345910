//! What the operations of a step have in common.

use super::super::phase::Phases;
use super::super::rope::Table;
use super::Executor;
use crate::backend::Span;
use crate::units::mutant;

/// What all operations of one step share.
#[derive(Debug)]
pub(in super::super) struct Context<'a> {
    pub(super) tokens: &'a [u32],
    pub(super) spans: &'a [Span],
    pub(super) rope: Option<Table>,
    pub(super) phases: Phases,
}

impl<'a> Context<'a> {
    /// The context of rows that belong to `spans`.
    pub(in super::super) fn new(
        executor: &Executor,
        tokens: &'a [u32],
        spans: &'a [Span],
    ) -> Context<'a> {
        let positions: Vec<usize> =
            spans.iter().flat_map(|s| s.position..s.position + s.rows.len()).collect();
        let positions = match mutant!("rope_restarts_each_step") {
            true => spans.iter().flat_map(|s| 0..s.rows.len()).collect(),
            false => positions,
        };
        let rope = executor.frequencies.as_ref().map(|f| f.table(&positions, executor.round));
        Context { tokens, spans, rope, phases: Phases::default() }
    }

    /// The same rows, some of them prefill; without this all are decode.
    pub(in super::super) fn with_phases(self, phases: Phases) -> Context<'a> {
        Context { phases, ..self }
    }
}
