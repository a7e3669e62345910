//! What one step does: entries of sequences, tokens and wanted rows.

/// What is wanted of one row (one token position).
#[derive(Clone, Debug, PartialEq)]
pub enum RowWant {
    Nothing,
    /// The arg-max id (lowest on ties).
    Greedy,
    /// log p of these ids, natural log, computed in FP64 from the FP32 logits.
    LogProbOf(Vec<u32>),
    /// The n largest logits with their ids, falling; lowest id first on ties.
    Top(usize),
    /// The whole row of FP32 logits.
    Logits,
    /// The row after the final norm.
    Hidden,
}

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

/// What one row gave.
#[derive(Clone, Debug, PartialEq)]
pub enum RowOutput {
    Nothing,
    Greedy(u32),
    LogProbs(Vec<f64>),
    Top(Vec<(u32, f32)>),
    Logits(Vec<f32>),
    Hidden(Vec<f32>),
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
pub struct Entry<'a, S> {
    pub sequence: &'a mut S,
    pub tokens: &'a [u32],
    pub want: Want,
}
