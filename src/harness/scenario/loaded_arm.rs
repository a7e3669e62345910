//! An arm that is loaded and warm: its engine, its prompts, and one run of a workload.

use super::worker::{Load, Loaded, ModelSource};
use super::{Point, PrefillUse, RegionTime, Sample, StepRegions};
use crate::backend::{DeviceKind, Policy, RegionCost};
use crate::descriptor::{Descriptor, RoleName};
use crate::engine::manifest::Execution;
use crate::engine::{Batch, Engine, EngineOptions, RowWant, Sequence, SequenceError, Want};
use crate::tensor::{Storage, Weight};
use crate::units::{Digest, SplitMix64};
use crate::weights::{
    Checkpoint, LoadOptions, Model, WeightSet, WeightsSource, synth, synth_quantised, synth_source,
};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Rows of a step of a prefill on a GPU: enough for its matrix units.
const CUDA_CHUNK_TOKENS: usize = 2048;

pub(super) struct LoadedArm {
    engine: Engine,
    /// A sequence that the next prompt may take, where prompts run in every sample.
    spare: Option<Sequence>,
    /// Runs that advance step by step, in the order they were opened.
    open: VecDeque<Run>,
    points: Vec<Point>,
    prompts: Vec<Vec<u32>>,
    /// Sequences behind their prompts, one per point, where prompts run once.
    behind: Vec<Behind>,
    slowdown_ratio: Option<f64>,
}

/// A sequence that has run a prompt.
struct Behind {
    sequence: Sequence,
    token: u32,
    prefill_ms: f64,
}

/// An engine with what its manifest and its bound are made of.
struct Opened {
    engine: Engine,
    source: WeightsSource,
    checkpoint: Option<Checkpoint>,
    /// Bytes of weights that a single-token step reads.
    step_bytes: u64,
}

impl LoadedArm {
    pub(super) fn load(load: Load) -> Result<(LoadedArm, Loaded), String> {
        let begun = Instant::now();
        let Opened { engine, source, checkpoint, step_bytes } = open(&load)?;
        let ready_ms = milliseconds(begun.elapsed());
        let prompts: Vec<Vec<u32>> = load
            .points
            .iter()
            .map(|p| prompt(load.prompt_seed, p.prompt_tokens, engine.descriptor().vocab))
            .collect();
        let bytes_per_token = load
            .points
            .iter()
            .map(|p| bytes_per_token(engine.descriptor(), step_bytes, *p))
            .collect();
        let manifest =
            Execution::of(&engine, &source, checkpoint.as_ref(), load.threads).manifest();
        let behind = match load.prefill {
            PrefillUse::Timed => Vec::new(),
            PrefillUse::Once => {
                prompts.iter().map(|p| run_prompt(&engine, p)).collect::<Result<_, _>>()?
            }
        };
        let mut arm = LoadedArm {
            engine,
            spare: None,
            open: VecDeque::new(),
            points: load.points,
            prompts,
            behind,
            slowdown_ratio: load.slowdown_ratio,
        };
        let mut tokens = Vec::new();
        for point in 0..arm.points.len() {
            for _ in 1..load.warmup {
                arm.sample(point)?;
            }
            tokens.push(arm.sample(point)?.tokens);
        }
        let regions =
            if load.regions { arm.regions().map_err(|e| e.to_string())? } else { Vec::new() };
        Ok((
            arm,
            Loaded { manifest: manifest.to_json(), tokens, bytes_per_token, ready_ms, regions },
        ))
    }

    /// The regions of the first step of every prompt and of a step behind it.
    fn regions(&self) -> Result<Vec<StepRegions>, SequenceError> {
        let mut steps = Vec::new();
        for (place, prompt) in self.points.iter().zip(&self.prompts) {
            let chunk = &prompt[..prompt.len().min(CUDA_CHUNK_TOKENS)];
            if self.behind.is_empty() {
                let costs = self.engine.profile_prefill(self.engine.sequence()?, chunk)?;
                steps.push(times(chunk.len(), 0, &costs));
            }
            let mut group = (0..place.sequences)
                .map(|_| {
                    let mut sequence = self.engine.sequence()?;
                    self.engine.prefill(&mut sequence, prompt, RowWant::Greedy)?;
                    Ok(sequence)
                })
                .collect::<Result<Vec<_>, SequenceError>>()?;
            let costs = self.engine.profile_decode(&mut group, 0)?;
            steps.push(times(group.len(), prompt.len(), &costs));
        }
        Ok(steps)
    }

    /// One run of a workload, from its begin to its end.
    pub(super) fn sample(&mut self, point: usize) -> Result<Sample, String> {
        let mut run = self.begin(point)?;
        while !run.is_complete() {
            run.step(&self.engine, self.slowdown_ratio)?;
        }
        Ok(self.end(run))
    }

    /// Begins a run that [`LoadedArm::step`] advances.
    pub(super) fn open(&mut self, point: usize) -> Result<(), String> {
        let run = self.begin(point)?;
        self.open.push_back(run);
        Ok(())
    }

    /// Advances an open run by one step.
    pub(super) fn step(&mut self, open: usize) -> Result<(), String> {
        match self.open.get_mut(open) {
            None => Err(format!("there is no open run {open}")),
            Some(run) if run.is_complete() => Err(format!("the open run {open} is complete")),
            Some(run) => run.step(&self.engine, self.slowdown_ratio),
        }
    }

    /// Ends the run that was opened first.
    pub(super) fn close(&mut self) -> Result<Sample, String> {
        let run = self.open.pop_front().ok_or("there is no open run")?;
        if !run.is_complete() {
            return Err(format!("the open run lacks {} steps", run.steps_left));
        }
        Ok(self.end(run))
    }

    /// The prompt, on an empty sequence or as a fork of one behind it.
    fn begin(&mut self, point: usize) -> Result<Run, String> {
        let (Some(place), Some(prompt)) = (self.points.get(point), self.prompts.get(point)) else {
            return Err(format!("there is no workload {point}"));
        };
        let (first, prefill_ms, token) = match self.behind.get(point) {
            Some(behind) => {
                let fork = behind.sequence.fork().map_err(|e| e.to_string())?;
                (fork, behind.prefill_ms, behind.token)
            }
            None => {
                let spare = self.spare.take().map_or_else(|| self.engine.sequence(), Ok);
                let mut sequence = spare.map_err(|e| e.to_string())?;
                sequence.reset();
                let begun = Instant::now();
                let token = first_token(&self.engine, &mut sequence, prompt)?;
                slow(begun, self.slowdown_ratio);
                (sequence, milliseconds(begun.elapsed()), token)
            }
        };
        let others = (1..place.sequences).map(|_| first.fork()).collect::<Result<Vec<_>, _>>();
        let others = others.map_err(|e| e.to_string())?;
        let forked = !others.is_empty() || !self.behind.is_empty();
        let mut group = vec![first];
        group.extend(others);
        let mut current = vec![token; group.len()];
        if forked {
            // The first step of a fork copies what it shares; that is no part of decoding.
            let mut group: Vec<&mut Sequence> = group.iter_mut().collect();
            current = step(&self.engine, &mut group, &current)?;
        }
        let steps_left = place.decode_tokens;
        Ok(Run {
            group,
            current,
            tokens: Vec::new(),
            steps_left,
            prefill_ms,
            decode: Duration::ZERO,
        })
    }

    fn end(&mut self, mut run: Run) -> Sample {
        run.tokens.extend_from_slice(&run.current);
        if self.behind.is_empty() {
            self.spare = run.group.into_iter().next();
        }
        let decode_ms = milliseconds(run.decode);
        Sample { prefill_ms: run.prefill_ms, decode_ms, tokens: digest(&run.tokens) }
    }
}

/// A run of a workload that is behind its prompt.
struct Run {
    group: Vec<Sequence>,
    /// The tokens to decode next, one per sequence.
    current: Vec<u32>,
    tokens: Vec<u32>,
    steps_left: u32,
    prefill_ms: f64,
    /// Of all steps so far.
    decode: Duration,
}

impl Run {
    fn is_complete(&self) -> bool {
        self.steps_left == 0
    }

    /// One timed step of every sequence.
    fn step(&mut self, engine: &Engine, slowdown_ratio: Option<f64>) -> Result<(), String> {
        let mut group: Vec<&mut Sequence> = self.group.iter_mut().collect();
        let begun = Instant::now();
        let next = step(engine, &mut group, &self.current)?;
        slow(begun, slowdown_ratio);
        self.decode += begun.elapsed();
        self.tokens.extend(std::mem::replace(&mut self.current, next));
        self.steps_left -= 1;
        Ok(())
    }
}

fn times(rows: usize, context: usize, costs: &[RegionCost]) -> StepRegions {
    // Thousandths of a microsecond, so that the number survives its decimal spelling.
    let rounded = |us: f64| (us * 1e3).round() / 1e3;
    let regions = costs
        .iter()
        .map(|c| RegionTime {
            region: c.region.name().to_owned(),
            launches: c.launches as u64,
            time_us: rounded(c.time_us),
            bytes: c.bytes,
        })
        .collect();
    StepRegions { rows: rows as u64, context_tokens: context as u64, regions }
}

fn open(load: &Load) -> Result<Opened, String> {
    let cuda = load.device == DeviceKind::Cuda;
    let defaults = EngineOptions::with_policy(load.policy);
    let options = EngineOptions {
        device: load.device.first(),
        threads: Some(load.threads),
        fusions: load.fusions.clone(),
        apart: load.apart.clone(),
        chunk_tokens: if cuda { CUDA_CHUNK_TOKENS } else { defaults.chunk_tokens },
        ..defaults
    };
    let (descriptor, weights, checkpoint) = match &load.model {
        ModelSource::Folder { path } => {
            let model = Model::open(path).map_err(|e| e.to_string())?;
            // What is repacked is read once, block by block, and need not stay in memory.
            let read_ahead = (load.policy != Policy::Fast || cuda) && load.recipe.is_none();
            let options = LoadOptions { read_ahead, ..LoadOptions::default() };
            let mut weights = model.load(&options).map_err(|e| e.to_string())?;
            if let Some(recipe) = &load.recipe {
                weights = weights.quantise(&model.descriptor, recipe).map_err(|e| e.to_string())?;
            }
            (model.descriptor, weights, Some(model.checkpoint))
        }
        ModelSource::Synthetic { descriptor, seed } => {
            let descriptor = Descriptor::read(descriptor).map_err(|e| e.to_string())?;
            let weights = match &load.recipe {
                Some(recipe) => {
                    synth_quantised(&descriptor, *seed, recipe).map_err(|e| e.to_string())?
                }
                // The device makes them itself.
                None if cuda => return synthetic(descriptor, *seed, &options),
                None => synth(&descriptor, *seed),
            };
            (descriptor, weights, None)
        }
    };
    let step_bytes = stored_bytes(&weights);
    let engine =
        Engine::new(Arc::new(descriptor), &weights, &options).map_err(|e| e.to_string())?;
    Ok(Opened { engine, source: weights.source().clone(), checkpoint, step_bytes })
}

fn synthetic(descriptor: Descriptor, seed: u64, options: &EngineOptions) -> Result<Opened, String> {
    let source = synth_source(&descriptor, seed);
    let head_is_embedding = descriptor.roles.iter().any(|r| r.tied_to == Some(RoleName::Embed));
    let embedding = (descriptor.vocab * descriptor.hidden * 2) as u64;
    let engine =
        Engine::synthetic(Arc::new(descriptor), seed, options).map_err(|e| e.to_string())?;
    let step_bytes = engine.weight_bytes() - if head_is_embedding { 0 } else { embedding };
    Ok(Opened { engine, source, checkpoint: None, step_bytes })
}

fn first_token(engine: &Engine, sequence: &mut Sequence, prompt: &[u32]) -> Result<u32, String> {
    let output = engine.prefill(sequence, prompt, RowWant::Greedy).map_err(|e| e.to_string())?;
    output.greedy().ok_or_else(|| "the engine gave no token".into())
}

fn run_prompt(engine: &Engine, prompt: &[u32]) -> Result<Behind, String> {
    let mut sequence = engine.sequence().map_err(|e| e.to_string())?;
    let begun = Instant::now();
    let token = first_token(engine, &mut sequence, prompt)?;
    Ok(Behind { sequence, token, prefill_ms: milliseconds(begun.elapsed()) })
}

/// One step of every sequence: the greedy tokens that follow.
fn step(engine: &Engine, group: &mut [&mut Sequence], tokens: &[u32]) -> Result<Vec<u32>, String> {
    if let ([sequence], [token]) = (&mut *group, tokens) {
        let output = engine.decode(sequence, *token, RowWant::Greedy).map_err(|e| e.to_string())?;
        return output.greedy().map(|t| vec![t]).ok_or_else(|| "the engine gave no token".into());
    }
    let mut batch = Batch::new();
    for (sequence, token) in group.iter_mut().zip(tokens) {
        batch.push(sequence, std::slice::from_ref(token), Want::Last(RowWant::Greedy));
    }
    let outputs = engine.forward(&mut batch);
    outputs
        .into_iter()
        .map(|o| {
            let output = o.map_err(|e: SequenceError| e.to_string())?;
            output.greedy().ok_or_else(|| "the engine gave no token".to_owned())
        })
        .collect()
}

/// Takes a share of the speed away: works on nothing until the step has taken 1 / (1 − share) times
/// as long, whatever the machine is doing.
fn slow(begun: Instant, share: Option<f64>) {
    let Some(share) = share else { return };
    let until = begun.elapsed().div_f64(1.0 - share);
    while begun.elapsed() < until {
        std::hint::spin_loop();
    }
}

/// Whole nanoseconds, in milliseconds: a number that survives its decimal spelling.
fn milliseconds(duration: Duration) -> f64 {
    duration.as_nanos() as f64 / 1e6
}

/// Token ids drawn from a seed, the same on every machine.
pub(super) fn prompt(seed: u64, tokens: u32, vocab: usize) -> Vec<u32> {
    let mut rng = SplitMix64::new(seed);
    (0..tokens).map(|_| (rng.next_unit() * vocab as f64) as u32).collect()
}

pub(super) fn digest(tokens: &[u32]) -> String {
    let bytes: Vec<u8> = tokens.iter().flat_map(|t| t.to_le_bytes()).collect();
    Digest::of(&bytes).short()
}

/// Bytes of a weight that a single-token step reads.
fn decoded_bytes(weight: &Weight) -> usize {
    match &weight.storage {
        Storage::Int4(packed) => packed.packed_bytes(),
        _ => weight.size_bytes(),
    }
}

/// Bytes of weights that a single-token step reads: every weight that it multiplies with, once, and an
/// embedding only where it is also the head.
fn stored_bytes(weights: &WeightSet) -> u64 {
    let tied = weights
        .ties()
        .any(|(a, b)| [a, b].contains(&RoleName::LmHead) && [a, b].contains(&RoleName::Embed));
    // A packed head is a weight of its own.
    let head_is_embedding = tied && !weights.iter().any(|(role, ..)| role == RoleName::LmHead);
    let stored: usize = weights
        .iter()
        .filter(|(role, ..)| *role != RoleName::Embed || head_is_embedding)
        .map(|(_, _, w)| decoded_bytes(w))
        .sum();
    stored as u64
}

/// A sequence's share of what a single-token step must read at least: the weights, and of every
/// sequence the cached keys and values at the middle of the decode and the states.
fn bytes_per_token(descriptor: &Descriptor, weight_bytes: u64, point: Point) -> u64 {
    let context = u64::from(point.prompt_tokens) + u64::from(point.decode_tokens) / 2;
    let cache = descriptor.cache_bytes_per_token() * context;
    // A gated delta net reads its state and writes it.
    weight_bytes / u64::from(point.sequences) + cache + descriptor.gdn_state_bytes_per_sequence()
}
