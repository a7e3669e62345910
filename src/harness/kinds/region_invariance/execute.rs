//! Executes a subject by a schedule.

use super::schedule::Move;
use super::subject::Subject;
use crate::backend::cpu::sample;
use crate::backend::{
    Buf, DeviceModel, LiveState, Phase, Region, RegionRun, RowOutput, RowWant, Span, State, Step,
};
use crate::units::{SplitMix64, unit_from_word};

/// What a schedule gave: every compared row of every output, and the state at the end.
#[derive(Debug, PartialEq)]
pub(super) struct Execution {
    pub(super) outputs: Vec<f32>,
    pub(super) state: Vec<LiveState>,
}

impl Execution {
    /// The name of the first part of the state whose bits differ.
    pub(super) fn first_state_difference(&self, other: &Execution) -> Option<String> {
        if self.state.len() != other.state.len() {
            return Some("number of parts".to_owned());
        }
        let same = |a: &[f64], b: &[f64]| {
            a.len() == b.len() && a.iter().zip(b).all(|(x, y)| x.to_bits() == y.to_bits())
        };
        let mut pairs = self.state.iter().zip(&other.state);
        pairs.find(|(a, b)| !same(&a.values, &b.values)).map(|(a, _)| a.name.clone())
    }

    pub(super) fn state_is_finite(&self) -> bool {
        self.state.iter().flat_map(|s| &s.values).all(|x| x.is_finite())
    }

    pub(super) fn state_len(&self) -> usize {
        self.state.iter().map(|s| s.values.len()).sum()
    }
}

/// Streams of content: the compared sequence, rejected rows, neighbours.
const OWN: u64 = 1;
const REJECTED: u64 = 2;
const NEIGHBOURS: [u64; 3] = [3, 4, 5];
/// Rows that a neighbour consumed before it joins.
const NEIGHBOUR_ROWS: usize = 70;

/// Rows of one stream, by input buffer.
struct Content {
    inputs: Vec<(Buf, usize, Vec<f32>)>,
    tokens: Vec<u32>,
}

impl Content {
    fn new(subject: &Subject, stream: u64, rows: usize) -> Content {
        let inputs = subject
            .inputs
            .iter()
            .map(|i| (i.buf, i.width, i.values(rows, stream, subject.round)))
            .collect();
        let mut rng = SplitMix64::new(stream);
        let vocab = subject.vocab as u64;
        let tokens = (0..rows).map(|_| (rng.next_word() % vocab) as u32).collect();
        Content { inputs, tokens }
    }
}

/// Rows of one sequence in a step.
struct Part<'a> {
    content: &'a Content,
    /// First row in `content`.
    row: usize,
    rows: usize,
    position: usize,
}

/// Executes the compared rows of a subject by a schedule.
pub(super) fn execute(subject: &Subject, moves: Vec<Move>) -> Result<Execution, String> {
    let prefix_rows = subject.prefix_rows;
    let own = Content::new(subject, OWN, prefix_rows + subject.rows);
    let rejected = Content::new(subject, REJECTED, subject.rows);
    let mut state = subject.model.new_state();
    if let (Some(prefix), true) = (&subject.prefix, prefix_rows > 0) {
        let part = Part { content: &own, row: 0, rows: prefix_rows, position: 0 };
        region(subject, prefix.as_ref(), &[part], &mut [state.as_mut()], &[])?;
    }
    let mut neighbours = Vec::new();
    if moves.contains(&Move::Among) {
        for (i, stream) in NEIGHBOURS.into_iter().enumerate() {
            let rows = NEIGHBOUR_ROWS + i * 25;
            let content = Content::new(subject, stream, rows + moves.len());
            let mut state = subject.model.new_state();
            step(
                subject,
                &[Part { content: &content, row: 0, rows, position: 0 }],
                &mut [state.as_mut()],
            )?;
            neighbours.push((content, state, rows));
        }
    }
    let mut outputs = Vec::new();
    let mut done = prefix_rows;
    for current in moves {
        match current {
            Move::Feed(rows) => {
                let part = Part { content: &own, row: done, rows, position: done };
                outputs.push(step(subject, &[part], &mut [state.as_mut()])?.swap_remove(0));
                done += rows;
            }
            Move::Reject(rows) => {
                let part = Part { content: &rejected, row: 0, rows, position: done };
                step(subject, &[part], &mut [state.as_mut()])?;
                state.truncate(done).map_err(|e| e.to_string())?;
            }
            Move::Among => {
                let [a, b, c] = &mut neighbours[..] else { return Err("no neighbours".into()) };
                let part = |n: &'_ (Content, Box<dyn State>, usize)| (n.2, n.2);
                let (pa, pb, pc) = (part(a), part(b), part(c));
                let parts = [
                    Part { content: &a.0, row: pa.0, rows: 1, position: pa.1 },
                    Part { content: &own, row: done, rows: 1, position: done },
                    Part { content: &b.0, row: pb.0, rows: 1, position: pb.1 },
                    Part { content: &c.0, row: pc.0, rows: 1, position: pc.1 },
                ];
                let mut states: [&mut dyn State; 4] =
                    [a.1.as_mut(), state.as_mut(), b.1.as_mut(), c.1.as_mut()];
                outputs.push(step(subject, &parts, &mut states)?.swap_remove(1));
                done += 1;
                for neighbour in &mut neighbours {
                    neighbour.2 += 1;
                }
            }
        }
    }
    Ok(Execution { outputs: outputs.concat(), state: state.live() })
}

/// One step; the output rows of every part (all outputs of a row side by side).
fn step(
    subject: &Subject,
    parts: &[Part<'_>],
    states: &mut [&mut dyn State],
) -> Result<Vec<Vec<f32>>, String> {
    if subject.reads_logits() {
        return head(subject, parts, states);
    }
    region(subject, subject.model.as_ref(), parts, states, &subject.outputs)
}

fn spans(parts: &[Part<'_>]) -> Vec<Span> {
    let mut start = 0;
    parts
        .iter()
        .map(|p| {
            start += p.rows;
            Span { rows: start - p.rows..start, position: p.position }
        })
        .collect()
}

fn tokens(parts: &[Part<'_>]) -> Vec<u32> {
    parts.iter().flat_map(|p| p.content.tokens[p.row..p.row + p.rows].iter().copied()).collect()
}

fn region(
    subject: &Subject,
    model: &dyn DeviceModel,
    parts: &[Part<'_>],
    states: &mut [&mut dyn State],
    outputs: &[Buf],
) -> Result<Vec<Vec<f32>>, String> {
    // A prefix model has fewer buffers than the region's own.
    let only =
        if outputs.is_empty() && subject.prefix.is_some() { 2 } else { subject.inputs.len() };
    let inputs: Vec<(Buf, Vec<f32>)> = (0..only)
        .map(|i| {
            let rows = parts.iter().flat_map(|p| {
                let (_, width, values) = &p.content.inputs[i];
                values[p.row * width..(p.row + p.rows) * width].iter().copied()
            });
            (subject.inputs[i].buf, rows.collect())
        })
        .collect();
    let (spans, tokens) = (spans(parts), tokens(parts));
    let run = RegionRun { tokens: &tokens, spans: &spans, inputs: &inputs, outputs };
    let found = model.region(&run, states).map_err(|e| e.to_string())?;
    let total = spans.last().map_or(0, |s| s.rows.end).max(1);
    let mut by_part = Vec::new();
    for span in &spans {
        let mut rows = Vec::new();
        for row in span.rows.clone() {
            for values in &found {
                let width = values.len() / total;
                rows.extend_from_slice(&values[row * width..][..width]);
            }
        }
        by_part.push(rows);
    }
    Ok(by_part)
}

/// Rows through the head: log-probabilities of three ids, or the id that a fixed draw selects.
fn head(
    subject: &Subject,
    parts: &[Part<'_>],
    states: &mut [&mut dyn State],
) -> Result<Vec<Vec<f32>>, String> {
    let tokens = tokens(parts);
    let want = match subject.region {
        Region::LogSoftmax => {
            let last = subject.vocab as u32 - 1;
            RowWant::LogProbOf(vec![0, last / 2, last])
        }
        _ => RowWant::Logits,
    };
    let wants = vec![want; tokens.len()];
    let spans = spans(parts);
    let phases = vec![Phase::Decode; spans.len()];
    let step = Step { tokens: &tokens, spans: spans.clone(), phases, wants };
    let rows = subject.model.step(&step, states, None).map_err(|e| e.to_string())?;
    let values = |row: usize, position: usize| -> Result<Vec<f32>, String> {
        match &rows[row] {
            // Both halves of each FP64, so that no bit is lost in the comparison.
            RowOutput::LogProbs(p) => {
                Ok(p.iter().flat_map(|p| [*p as f32, (*p - f64::from(*p as f32)) as f32]).collect())
            }
            RowOutput::Logits(logits) => {
                let word = SplitMix64::new(position as u64).next_word();
                let id = sample(logits, 0.8, || unit_from_word(word));
                Ok(vec![id.map_err(|e| e.to_string())? as f32])
            }
            other => Err(format!("the head gave {other:?}")),
        }
    };
    spans
        .iter()
        .map(|span| {
            let rows = span.rows.clone().map(|r| values(r, span.position + r - span.rows.start));
            Ok(rows.collect::<Result<Vec<_>, String>>()?.concat())
        })
        .collect()
}
