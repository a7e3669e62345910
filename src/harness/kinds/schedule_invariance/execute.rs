//! Executes a schedule and checks every row against serial execution.

use super::schedule::{Action, token};
use super::serial::{Serial, digest};
use crate::engine::{
    Batch, Engine, RowOutput, RowWant, Sequence, SequenceCheckpoint, SequenceError, Want,
};
use std::collections::BTreeMap;

/// What a schedule came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    /// Rows compared.
    pub(super) rows: usize,
    /// Most sequences of one step.
    pub(super) sequences: usize,
    /// Tokens of the longest sequence.
    pub(super) longest_tokens: usize,
    /// Truncations that history did not reach, refused and checked to change nothing.
    pub(super) refused: usize,
}

struct Slot {
    sequence: Sequence,
    stream: u64,
    tokens: Vec<u32>,
    checkpoint: Option<(SequenceCheckpoint, u64, Vec<u32>)>,
}

/// Runs the actions; an error is the first row or state that differs.
pub(super) fn execute(
    engine: &Engine,
    serial: &mut Serial,
    actions: &[Action],
) -> Result<Counts, String> {
    let mut counts = Counts::default();
    let mut slots: BTreeMap<usize, Slot> = BTreeMap::new();
    for action in actions {
        act(engine, serial, action, &mut slots, &mut counts)
            .map_err(|e| format!("{action}: {e}"))?;
    }
    for (index, slot) in &slots {
        let expected = serial.sequence(engine, &slot.tokens)?;
        let same = slot.sequence.live().map_err(text)? == expected.live().map_err(text)?;
        if !same {
            return Err(format!("state of s{index} after {} tokens differs", slot.tokens.len()));
        }
    }
    Ok(counts)
}

fn act(
    engine: &Engine,
    serial: &mut Serial,
    action: &Action,
    slots: &mut BTreeMap<usize, Slot>,
    counts: &mut Counts,
) -> Result<(), String> {
    match action {
        Action::Join { slot, stream } => {
            let sequence = engine.sequence().map_err(text)?;
            let fresh = Slot { sequence, stream: *stream, tokens: Vec::new(), checkpoint: None };
            slots.insert(*slot, fresh);
        }
        Action::Leave { slot } => {
            slots.remove(slot);
        }
        Action::Step { parts } => step(engine, serial, parts, slots, counts)?,
        Action::Truncate { slot, tokens } => {
            let Some(slot) = slots.get_mut(slot) else { return Ok(()) };
            let target = slot.tokens.len().saturating_sub(*tokens);
            match slot.sequence.truncate(target) {
                Ok(()) => slot.tokens.truncate(target),
                Err(SequenceError::Truncate { .. }) => counts.refused += 1,
                Err(e) => return Err(text(e)),
            }
            if slot.sequence.len_tokens() != slot.tokens.len() {
                return Err("the length after truncation is wrong".to_owned());
            }
        }
        Action::Fork { from, to } => {
            let Some(source) = slots.get(from) else { return Ok(()) };
            let copy = Slot {
                sequence: source.sequence.fork().map_err(text)?,
                stream: source.stream,
                tokens: source.tokens.clone(),
                checkpoint: None,
            };
            slots.insert(*to, copy);
        }
        Action::Checkpoint { slot } => {
            let Some(slot) = slots.get_mut(slot) else { return Ok(()) };
            slot.checkpoint = None;
            let taken = slot.sequence.checkpoint().map_err(text)?;
            slot.checkpoint = Some((taken, slot.stream, slot.tokens.clone()));
        }
        Action::Restore { slot } => {
            let Some(slot) = slots.get_mut(slot) else { return Ok(()) };
            if let Some((checkpoint, stream, tokens)) = &slot.checkpoint {
                slot.sequence.restore(checkpoint).map_err(text)?;
                slot.stream = *stream;
                slot.tokens.clone_from(tokens);
            }
        }
        Action::Divert { slot, stream } => {
            if let Some(slot) = slots.get_mut(slot) {
                slot.stream = *stream;
            }
        }
    }
    Ok(())
}

fn step(
    engine: &Engine,
    serial: &mut Serial,
    parts: &[(usize, usize)],
    slots: &mut BTreeMap<usize, Slot>,
    counts: &mut Counts,
) -> Result<(), String> {
    let vocab = engine.descriptor().vocab;
    let mut taking: Vec<(&mut Slot, Vec<u32>)> = Vec::new();
    for (index, slot) in slots.iter_mut() {
        if let Some((_, n)) = parts.iter().find(|(s, _)| s == index) {
            let start = slot.tokens.len();
            let tokens = (start..start + n).map(|p| token(slot.stream, p, vocab)).collect();
            taking.push((slot, tokens));
        }
    }
    let mut batch = Batch::new();
    for (slot, tokens) in &mut taking {
        batch.push(&mut slot.sequence, tokens, Want::Every(RowWant::Logits));
    }
    let outputs = engine.forward(&mut batch);
    drop(batch);
    counts.sequences = counts.sequences.max(taking.len());
    for ((slot, tokens), output) in taking.into_iter().zip(outputs) {
        let start = slot.tokens.len();
        slot.tokens.extend(tokens);
        counts.longest_tokens = counts.longest_tokens.max(slot.tokens.len());
        // The last row first: serial execution passes the others on its way.
        serial.row(engine, &slot.tokens)?;
        for (i, row) in output.map_err(text)?.rows.iter().enumerate() {
            let RowOutput::Logits(logits) = row else { return Err("no logits".to_owned()) };
            let expected = serial.row(engine, &slot.tokens[..start + i + 1])?;
            if digest(logits) != expected {
                return Err(format!("row at position {} differs from serial execution", start + i));
            }
            counts.rows += 1;
        }
    }
    Ok(())
}

fn text(error: SequenceError) -> String {
    error.to_string()
}
