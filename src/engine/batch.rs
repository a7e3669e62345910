//! What one step does: entries of sequences, tokens and wanted rows.

use super::Sequence;
use crate::backend::{Phase, RowOutput, RowWant};

/// What is wanted of an entry's rows.
#[derive(Clone, Debug, PartialEq)]
pub enum Want {
    /// Nothing of any row.
    Nothing,
    /// This of the last row only.
    Last(RowWant),
    /// This of every row.
    Every(RowWant),
    /// One per row.
    Rows(Vec<RowWant>),
}

/// What an entry gave: one item per row, in order.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct Output {
    pub rows: Vec<RowOutput>,
}

impl Output {
    /// The last row's output.
    pub fn last(&self) -> &RowOutput {
        self.rows.last().unwrap_or(&RowOutput::Nothing)
    }

    /// The last row's arg-max id, if that was asked for.
    pub fn greedy(&self) -> Option<u32> {
        match self.last() {
            RowOutput::Greedy(id) => Some(*id),
            _ => None,
        }
    }

    /// The last row's logits, if they were asked for.
    pub fn into_logits(mut self) -> Option<Vec<f32>> {
        match self.rows.pop() {
            Some(RowOutput::Logits(logits)) => Some(logits),
            _ => None,
        }
    }
}

/// One sequence's part of a step.
#[derive(Debug)]
pub struct Entry<'a> {
    pub sequence: &'a mut Sequence,
    pub tokens: &'a [u32],
    pub want: Want,
    /// What the rows are for.
    pub phase: Phase,
}

/// The entries of one step. A single request is the case of one entry.
#[derive(Debug, Default)]
pub struct Batch<'a> {
    pub entries: Vec<Entry<'a>>,
}

impl<'a> Batch<'a> {
    /// An empty batch.
    pub fn new() -> Batch<'a> {
        Batch::default()
    }

    /// Adds an entry: decode if it is one token of a sequence that has some already, else prefill.
    /// The difference shows only where weights are packed and prefill keeps the wide ones; a caller
    /// that verifies several tokens, or feeds a prompt token by token, says so with
    /// [`Batch::push_as`].
    pub fn push(&mut self, sequence: &'a mut Sequence, tokens: &'a [u32], want: Want) {
        let decode = tokens.len() == 1 && sequence.len_tokens() > 0;
        let phase = if decode { Phase::Decode } else { Phase::Prefill };
        self.push_as(phase, sequence, tokens, want);
    }

    /// Adds an entry whose rows are prefill, or decode.
    pub fn push_as(
        &mut self,
        phase: Phase,
        sequence: &'a mut Sequence,
        tokens: &'a [u32],
        want: Want,
    ) {
        self.entries.push(Entry { sequence, tokens, want, phase });
    }
}

impl Want {
    /// What is wanted of each of `rows` rows; an explicit list of another length gives its length.
    pub(super) fn rows(&self, rows: usize) -> Result<Vec<RowWant>, usize> {
        match self {
            Want::Nothing => Ok(vec![RowWant::Nothing; rows]),
            Want::Last(want) => {
                let mut all = vec![RowWant::Nothing; rows];
                if let Some(last) = all.last_mut() {
                    last.clone_from(want);
                }
                Ok(all)
            }
            Want::Every(want) => Ok(vec![want.clone(); rows]),
            Want::Rows(wants) if wants.len() == rows => Ok(wants.clone()),
            Want::Rows(wants) => Err(wants.len()),
        }
    }
}
