//! The worker side of a run: one arm, one process, one line of JSON per request and reply.

use super::{Point, Sample};
use crate::backend::{Fusion, Policy};
use crate::descriptor::Descriptor;
use crate::engine::manifest::Execution;
use crate::engine::{Engine, EngineOptions, RowWant, Sequence};
use crate::tensor::{Storage, Weight};
use crate::units::{Digest, SplitMix64, peak_resident_bytes};
use crate::weights::{LoadOptions, Model, Recipe, WeightSet, synth, synth_quantised};
use serde::{Deserialize, Serialize};
use std::io::{BufRead, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

/// What the runner asks of a worker.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "ask", rename_all = "snake_case", deny_unknown_fields)]
pub enum Ask {
    /// Load the model, warm up, run every workload untimed.
    Load(Load),
    /// Run one workload, timed.
    Sample { point: usize },
    /// Report memory and end.
    Finish {},
}

/// What a worker loads.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Load {
    pub model: ModelSource,
    pub policy: Policy,
    pub threads: usize,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fusions: Vec<Fusion>,
    pub points: Vec<Point>,
    pub prompt_seed: u64,
    pub warmup: u32,
    /// What is packed when the model is loaded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recipe: Option<Recipe>,
    /// Share of the speed that every step gives up by waiting.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slowdown_ratio: Option<f64>,
}

/// The model of every arm.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum ModelSource {
    /// A Hugging Face folder.
    Folder { path: PathBuf },
    /// Synthetic weights of a descriptor.
    Synthetic { descriptor: PathBuf, seed: u64 },
}

impl std::fmt::Display for ModelSource {
    /// In words, without the path that leads there.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let name = |path: &std::path::Path| {
            path.file_name().map_or_else(|| "model".into(), |n| n.to_string_lossy().into_owned())
        };
        match self {
            ModelSource::Folder { path } => write!(f, "checkpoint {}", name(path)),
            ModelSource::Synthetic { descriptor, seed } => {
                write!(f, "synthetic weights (seed {seed}) of {}", name(descriptor))
            }
        }
    }
}

/// What a worker answers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "reply", rename_all = "snake_case", deny_unknown_fields)]
pub enum Reply {
    Loaded(Box<Loaded>),
    Sampled(Sample),
    Finished {
        host_bytes: Option<u64>,
    },
    /// The request could not be carried out; the worker ends.
    Failed {
        message: String,
    },
}

/// A warm model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Loaded {
    pub manifest: serde_json::Value,
    /// Digest of the tokens of an untimed run, one per point.
    pub tokens: Vec<String>,
    /// Bytes that one single-token step reads at least, one per point.
    pub bytes_per_token: Vec<u64>,
}

/// Serves one arm until it is told to finish or its input ends.
///
/// # Errors
/// The pipes broke.
pub fn serve(input: impl BufRead, mut output: impl Write) -> std::io::Result<()> {
    let mut arm: Option<LoadedArm> = None;
    for line in input.lines() {
        let reply = match serde_json::from_str::<Ask>(&line?) {
            Err(e) => Err(format!("the request is not understood: {e}")),
            Ok(Ask::Load(load)) => LoadedArm::load(load).map(|(loaded, reply)| {
                arm = Some(loaded);
                Reply::Loaded(Box::new(reply))
            }),
            Ok(Ask::Sample { point }) => match &mut arm {
                Some(arm) => arm.sample(point).map(Reply::Sampled),
                None => Err("a sample was asked for before a model".into()),
            },
            Ok(Ask::Finish {}) => Ok(Reply::Finished { host_bytes: peak_resident_bytes() }),
        };
        let reply = reply.unwrap_or_else(|message| Reply::Failed { message });
        let last = matches!(reply, Reply::Finished { .. } | Reply::Failed { .. });
        writeln!(output, "{}", serde_json::to_string(&reply)?)?;
        output.flush()?;
        if last {
            break;
        }
    }
    Ok(())
}

struct LoadedArm {
    engine: Engine,
    sequence: Sequence,
    points: Vec<Point>,
    prompts: Vec<Vec<u32>>,
    slowdown_ratio: Option<f64>,
}

impl LoadedArm {
    fn load(load: Load) -> Result<(LoadedArm, Loaded), String> {
        let (descriptor, weights, checkpoint) = match &load.model {
            ModelSource::Folder { path } => {
                let model = Model::open(path).map_err(|e| e.to_string())?;
                // What is repacked is read once, block by block, and need not stay in memory.
                let read_ahead = load.policy != Policy::Fast && load.recipe.is_none();
                let options = LoadOptions { read_ahead, ..LoadOptions::default() };
                let mut weights = model.load(&options).map_err(|e| e.to_string())?;
                if let Some(recipe) = &load.recipe {
                    weights =
                        weights.quantise(&model.descriptor, recipe).map_err(|e| e.to_string())?;
                }
                (model.descriptor, weights, Some(model.checkpoint))
            }
            ModelSource::Synthetic { descriptor, seed } => {
                let descriptor = Descriptor::read(descriptor).map_err(|e| e.to_string())?;
                let weights = match &load.recipe {
                    Some(recipe) => {
                        synth_quantised(&descriptor, *seed, recipe).map_err(|e| e.to_string())?
                    }
                    None => synth(&descriptor, *seed),
                };
                (descriptor, weights, None)
            }
        };
        let options = EngineOptions {
            threads: Some(load.threads),
            fusions: load.fusions.clone(),
            ..EngineOptions::with_policy(load.policy)
        };
        let engine =
            Engine::new(Arc::new(descriptor), &weights, &options).map_err(|e| e.to_string())?;
        let sequence = engine.sequence().map_err(|e| e.to_string())?;
        let prompts = load
            .points
            .iter()
            .map(|p| prompt(load.prompt_seed, p.prompt_tokens, engine.descriptor().vocab))
            .collect();
        let bytes_per_token = load
            .points
            .iter()
            .map(|p| bytes_per_token(engine.descriptor(), &weights, *p))
            .collect();
        let manifest =
            Execution::of(&engine, weights.source(), checkpoint.as_ref(), load.threads).manifest();
        let slowdown_ratio = load.slowdown_ratio;
        let mut arm = LoadedArm { engine, sequence, points: load.points, prompts, slowdown_ratio };
        let mut tokens = Vec::new();
        for point in 0..arm.points.len() {
            for _ in 1..load.warmup {
                arm.sample(point)?;
            }
            tokens.push(arm.sample(point)?.tokens);
        }
        Ok((arm, Loaded { manifest: manifest.to_json(), tokens, bytes_per_token }))
    }

    /// One run of a workload on an empty sequence.
    fn sample(&mut self, point: usize) -> Result<Sample, String> {
        let (Some(place), Some(prompt)) = (self.points.get(point), self.prompts.get(point)) else {
            return Err(format!("there is no workload {point}"));
        };
        let explain = |e: crate::engine::SequenceError| e.to_string();
        self.sequence.reset();
        let mut tokens = Vec::with_capacity(place.decode_tokens as usize + 1);
        let begun = Instant::now();
        let output =
            self.engine.prefill(&mut self.sequence, prompt, RowWant::Greedy).map_err(explain)?;
        let mut token = output.greedy().ok_or("the engine gave no token")?;
        slow(begun, self.slowdown_ratio);
        let first = Instant::now();
        for _ in 0..place.decode_tokens {
            let step = Instant::now();
            tokens.push(token);
            let output =
                self.engine.decode(&mut self.sequence, token, RowWant::Greedy).map_err(explain)?;
            token = output.greedy().ok_or("the engine gave no token")?;
            slow(step, self.slowdown_ratio);
        }
        let end = Instant::now();
        tokens.push(token);
        Ok(Sample {
            prefill_ms: milliseconds(first - begun),
            decode_ms: milliseconds(end - first),
            tokens: digest(&tokens),
        })
    }
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
fn milliseconds(duration: std::time::Duration) -> f64 {
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

/// What a single-token step must read at least: every weight that it multiplies with, once, one
/// row of an embedding that is not also the head, and the cached keys and values at the middle of
/// the decode.
fn bytes_per_token(descriptor: &Descriptor, weights: &WeightSet, point: Point) -> u64 {
    use crate::descriptor::RoleName;
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
    let context = u64::from(point.prompt_tokens) + u64::from(point.decode_tokens) / 2;
    let cache = descriptor.cache_bytes_per_token() * context;
    // A gated delta net reads its state and writes it.
    stored as u64 + cache + descriptor.gdn_state_bytes_per_sequence()
}
