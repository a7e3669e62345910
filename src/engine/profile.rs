//! Where the time of a step goes.

use super::{Engine, Sequence, SequenceError};
use crate::backend::{Phase, RegionCost, RowWant, Span, State, Step};

impl Engine {
    /// Times the regions of a step that would feed `token` to every sequence, on a device that can
    /// (none on the host). Sequences do not advance, and such a step must have been executed before.
    ///
    /// # Errors
    /// A sequence is invalid, or the device failed.
    pub fn profile_decode(
        &self,
        sequences: &mut [Sequence],
        token: u32,
    ) -> Result<Vec<RegionCost>, SequenceError> {
        let tokens = vec![token; sequences.len()];
        let spans = sequences
            .iter()
            .enumerate()
            .map(|(i, s)| Span { rows: i..i + 1, position: s.len_tokens() })
            .collect();
        let step = Step {
            tokens: &tokens,
            spans,
            phases: vec![Phase::Decode; sequences.len()],
            wants: vec![RowWant::Greedy; sequences.len()],
        };
        self.profile(&step, sequences)
    }

    /// What every region of a prefill of `tokens` in one step costs. What the sequence holds afterwards
    /// is good for nothing but another profile.
    ///
    /// # Errors
    /// As [`Engine::profile_decode`].
    pub fn profile_prefill(
        &self,
        sequence: Sequence,
        tokens: &[u32],
    ) -> Result<Vec<RegionCost>, SequenceError> {
        let mut wants = vec![RowWant::Nothing; tokens.len()];
        if let Some(last) = wants.last_mut() {
            *last = RowWant::Greedy;
        }
        let step = Step {
            tokens,
            spans: vec![Span { rows: 0..tokens.len(), position: sequence.len_tokens() }],
            phases: vec![Phase::Prefill],
            wants,
        };
        self.profile(&step, &mut [sequence])
    }

    fn profile(
        &self,
        step: &Step<'_>,
        sequences: &mut [Sequence],
    ) -> Result<Vec<RegionCost>, SequenceError> {
        sequences.iter().try_for_each(Sequence::check_valid)?;
        let mut states: Vec<&mut dyn State> = Vec::new();
        for sequence in sequences {
            states.push(sequence.state.as_mut());
        }
        self.home.model.profile(step, &mut states).map_err(|fault| SequenceError::DeviceFault {
            region: fault.region,
            message: fault.message,
        })
    }
}
