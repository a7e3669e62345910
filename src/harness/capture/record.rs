//! Recording a capture.

use super::write::Writer;
use super::{CAPTURE_VERSION, CaptureError, CaptureInfo, Prompt, PromptInfo};
use crate::backend::{RowOutput, RowWant, Taps, cpu};
use crate::engine::manifest::Manifest;
use crate::engine::{Batch, Engine, Output, Sequence, SequenceError, Want};
use crate::units::nearest;
use std::ops::ControlFlow;
use std::path::Path;

/// The name that stands for every activation.
pub const EVERY_TAP: &str = "all";

/// What to record.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecordOptions {
    /// Greedy tokens after each prompt.
    pub greedy_steps: usize,
    /// Logits of every position instead of the last one's.
    pub all_positions: bool,
    /// The activations of the residual stream, the mixers and the feed-forwards.
    pub taps: bool,
    /// Further activations by name; [`EVERY_TAP`] stands for all.
    pub tap_names: Vec<String>,
    /// Recurrent and convolution states after each prompt.
    pub states: bool,
}

/// What was recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recorded {
    pub info: CaptureInfo,
    pub size_bytes: u64,
    /// Whether the model has recurrent states; without any, asking for them records nothing.
    pub has_states: bool,
}

/// Runs the prompts and writes the capture to `out`, under that name only when it is complete.
/// `progress` is told prompt tokens as they are consumed, 0 at each greedy token, and may end it.
///
/// # Errors
/// An activation that does not exist, a prompt that the engine refuses, a failed write,
/// [`CaptureError::Interrupted`], what [`super::destination()`] refuses. Nothing is left behind then.
pub fn record(
    engine: &Engine,
    manifest: &Manifest,
    prompts: &[Prompt],
    options: &RecordOptions,
    out: &Path,
    progress: &mut dyn FnMut(usize) -> ControlFlow<()>,
) -> Result<Recorded, CaptureError> {
    let options = &spelt_out(engine, options);
    let order = tap_order(engine, options)?;
    for prompt in prompts {
        admit(engine, prompt, options)?;
    }
    let mut writer = Writer::create(out)?;
    let mut has_states = false;
    let mut infos = Vec::new();
    for prompt in prompts {
        has_states |= run(engine, prompt, options, &order, &mut writer, progress)?;
        let tokens = prompt.token_ids.len();
        infos.push(PromptInfo {
            name: prompt.name.clone(),
            token_ids: prompt.token_ids.clone(),
            text: prompt.text.clone(),
            first_logits_position: if options.all_positions { 0 } else { tokens - 1 },
            cases: PromptInfo::cases(tokens, engine.chunk_tokens(), options.greedy_steps),
        });
    }
    let info = CaptureInfo {
        capture_version: CAPTURE_VERSION,
        all_positions: options.all_positions,
        greedy_steps: options.greedy_steps,
        chunk_tokens: engine.chunk_tokens(),
        tap_regions: tap_regions(engine, &order),
        taps: order,
        states: options.states,
        prompts: infos,
    };
    let size_bytes = writer.finish(&info, manifest)?;
    Ok(Recorded { info, size_bytes, has_states })
}

/// The options with every activation named where all are asked for.
fn spelt_out(engine: &Engine, options: &RecordOptions) -> RecordOptions {
    let mut options = options.clone();
    if options.tap_names.iter().any(|n| n == EVERY_TAP) {
        options.tap_names = engine.plan().tap_names().into_iter().collect();
    }
    options
}

/// The requested activations in the order of execution.
fn tap_order(engine: &Engine, options: &RecordOptions) -> Result<Vec<String>, CaptureError> {
    let known = engine.plan().tap_names();
    if let Some(name) = options.tap_names.iter().find(|n| !known.contains(*n)) {
        let nearest = nearest(name, known.iter().map(String::as_str)).map(str::to_owned);
        return Err(CaptureError::UnknownTap { name: name.clone(), nearest });
    }
    let taps = request(options);
    let names = engine.plan().all_ops().flat_map(|op| op.taps.iter().map(|(name, _)| name));
    Ok(names.filter(|n| taps.wants(n)).cloned().collect())
}

/// For each captured activation, and at last for the logits, the regions that ran since the one
/// before.
fn tap_regions(engine: &Engine, order: &[String]) -> Vec<Vec<String>> {
    let mut found = Vec::new();
    let mut regions: Vec<String> = Vec::new();
    for op in engine.plan().all_ops() {
        let name = op.kind.region().name();
        // Each region once, the one that ran last at the end.
        regions.retain(|r| r != name);
        regions.push(name.to_owned());
        for _ in op.taps.iter().filter(|(tap, _)| order.contains(tap)) {
            found.push(std::mem::take(&mut regions));
            // A further tap of the same operation was made by it as well.
            regions.push(name.to_owned());
        }
        if op.taps.iter().any(|(tap, _)| order.contains(tap)) {
            regions.clear();
        }
    }
    found.push(regions);
    found
}

fn request(options: &RecordOptions) -> Taps {
    let taps = if options.taps { Taps::standard() } else { Taps::default() };
    taps.with_names(options.tap_names.iter().cloned())
}

/// Checks what can be checked before any work.
fn admit(engine: &Engine, prompt: &Prompt, options: &RecordOptions) -> Result<(), CaptureError> {
    let refuse = |source| Err(CaptureError::Sequence { prompt: prompt.name.clone(), source });
    if prompt.token_ids.is_empty() {
        return refuse(SequenceError::NoTokens);
    }
    let vocab = engine.descriptor().vocab;
    if let Some(id) = prompt.token_ids.iter().find(|id| **id as usize >= vocab) {
        return refuse(SequenceError::TokenOutOfRange { id: *id, vocab });
    }
    let end_tokens = prompt.token_ids.len() + options.greedy_steps.saturating_sub(1);
    let limit_tokens = engine.context_tokens();
    if end_tokens > limit_tokens {
        return refuse(SequenceError::ContextFull { end_tokens, limit_tokens });
    }
    Ok(())
}

fn run(
    engine: &Engine,
    prompt: &Prompt,
    options: &RecordOptions,
    order: &[String],
    writer: &mut Writer,
    progress: &mut dyn FnMut(usize) -> ControlFlow<()>,
) -> Result<bool, CaptureError> {
    let Prompt { name, token_ids, .. } = prompt;
    let failed = |source| CaptureError::Sequence { prompt: name.clone(), source };
    let mut sequence = engine.sequence().map_err(failed)?;
    let mut taps = request(options);
    let (rows, vocab) = (token_ids.len(), engine.descriptor().vocab);
    let kept = if options.all_positions { rows } else { 1 };
    writer.begin(format!("logits.{name}"), vec![kept, vocab]);
    let mut last = Vec::new();
    for chunk in token_ids.chunks(engine.chunk_tokens()) {
        let ends = sequence.len_tokens() + chunk.len() == rows;
        let want = wanted(chunk.len(), ends, options, !order.is_empty());
        let output = step(engine, &mut sequence, chunk, want, Some(&mut taps)).map_err(failed)?;
        for row in output.rows {
            if let RowOutput::Logits(logits) = row {
                writer.append(&logits)?;
                last = logits;
            }
        }
        go_on(progress(chunk.len()))?;
    }
    let mut captured = taps.take();
    for tap in order {
        if let Some(tensor) = captured.remove(tap) {
            let rows = tensor.values.len() / tensor.width.max(1);
            let (full, shape) = (format!("tap.{name}.{tap}"), vec![rows, tensor.width]);
            if tap.ends_with(".router_index") {
                writer.indices(full, shape, &tensor.values)?;
            } else {
                writer.begin(full, shape);
                writer.append(&tensor.values)?;
            }
        }
    }
    let mut has_states = false;
    if options.states {
        for state in sequence.inspect().map_err(failed)? {
            has_states = true;
            writer.begin(format!("state.{name}.{}", state.name), state.shape);
            writer.append(&state.values)?;
        }
    }
    let greedy = greedy(engine, sequence, &last, options.greedy_steps, name, progress)?;
    if options.greedy_steps > 0 {
        writer.ids(format!("greedy.{name}"), greedy);
    }
    Ok(has_states)
}

/// What is wanted of the rows of a chunk. The final norm runs only for rows something is wanted of,
/// so with taps every row's hidden state is asked for.
fn wanted(rows: usize, ends: bool, options: &RecordOptions, taps: bool) -> Want {
    if options.all_positions {
        return Want::Every(RowWant::Logits);
    }
    let others = if taps { RowWant::Hidden } else { RowWant::Nothing };
    let mut wants = vec![others; rows];
    if let (true, Some(last)) = (ends, wants.last_mut()) {
        *last = RowWant::Logits;
    }
    Want::Rows(wants)
}

fn go_on(flow: ControlFlow<()>) -> Result<(), CaptureError> {
    if flow.is_break() { Err(CaptureError::Interrupted) } else { Ok(()) }
}

fn step(
    engine: &Engine,
    sequence: &mut Sequence,
    tokens: &[u32],
    want: Want,
    taps: Option<&mut Taps>,
) -> Result<Output, SequenceError> {
    let mut batch = Batch::new();
    batch.push(sequence, tokens, want);
    engine.forward_tapped(&mut batch, taps).swap_remove(0)
}

/// Greedy tokens after the prompt; end tokens do not stop them.
fn greedy(
    engine: &Engine,
    mut sequence: Sequence,
    last: &[f32],
    steps: usize,
    name: &str,
    progress: &mut dyn FnMut(usize) -> ControlFlow<()>,
) -> Result<Vec<u32>, CaptureError> {
    let mut ids: Vec<u32> = Vec::with_capacity(steps);
    while ids.len() < steps {
        go_on(progress(0))?;
        let id = match ids.last() {
            None => cpu::greedy(last).ok(),
            Some(id) => step(engine, &mut sequence, &[*id], Want::Last(RowWant::Greedy), None)
                .map_err(|source| CaptureError::Sequence { prompt: name.to_owned(), source })?
                .greedy(),
        };
        let position = sequence.len_tokens().saturating_sub(1);
        ids.push(id.ok_or_else(|| CaptureError::NonFinite { prompt: name.to_owned(), position })?);
    }
    Ok(ids)
}
