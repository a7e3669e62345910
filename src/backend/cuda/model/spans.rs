//! Spans of a step and the states they belong to.

use super::record::pages_of;
use super::state::CudaState;
use crate::backend::cpu::BLOCK_TOKENS;
use crate::backend::cuda::CudaError;
use crate::backend::{Span, State};

/// Key blocks of the longest past of a span of one row.
pub(super) fn blocks_of(spans: &[Span]) -> usize {
    let single = spans.iter().filter(|s| s.rows.len() == 1);
    single.map(|s| (s.position + 1).div_ceil(BLOCK_TOKENS)).max().unwrap_or(1)
}

/// Makes room in every state and gives the addresses of its memory.
pub(super) fn prepare(
    states: &mut [&mut CudaState],
    spans: &[Span],
) -> Result<Vec<(Vec<u64>, u64)>, CudaError> {
    states
        .iter_mut()
        .zip(spans)
        .map(|(state, span)| {
            let entry = state.prepare(span.rows.len())?;
            debug_assert!(entry.0.is_empty() || entry.0.len() == pages_of(span));
            Ok(entry)
        })
        .collect()
}

/// This device's states.
pub(super) fn own<'a>(states: &'a mut [&mut dyn State]) -> Vec<&'a mut CudaState> {
    states
        .iter_mut()
        .map(|s| s.as_any_mut().downcast_mut::<CudaState>().expect("a state of this device"))
        .collect()
}

/// Counts the tokens that a step consumed.
pub(super) fn advance(states: &mut [&mut CudaState], spans: &[Span]) {
    for (state, span) in states.iter_mut().zip(spans) {
        state.advance(span.position + span.rows.len());
    }
}
