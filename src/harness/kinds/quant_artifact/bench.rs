//! Conversions and engines that checks share.

use crate::backend::{Policy, RowOutput, RowWant};
use crate::engine::manifest::{BlockName, Execution, compare};
use crate::engine::{Engine, EngineOptions};
use crate::weights::{
    Checkpoint, ConvertOptions, LoadOptions, Model, Prefill, Recipe, WeightSet, convert,
};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

/// Tokens that are fed as a prompt, and the ones decoded after it.
const PROMPT: [u32; 9] = [3, 141, 59, 26, 5, 35, 89, 79, 32];
const DECODED: [u32; 3] = [38, 46, 26];

/// Result in words.
pub(super) type Words<T> = Result<T, String>;

/// An error in words.
pub(super) fn words(e: impl std::fmt::Display) -> String {
    e.to_string()
}

/// Opens a model folder and loads its weights.
pub(super) fn open(folder: &Path) -> Words<(Model, WeightSet)> {
    let model = Model::open(folder).map_err(words)?;
    let weights = model.load(&LoadOptions::default()).map_err(words)?;
    Ok((model, weights))
}

/// Packs `model` into `out`, in files of at most `max_shard_bytes`.
pub(super) fn pack(
    model: &Path,
    out: &Path,
    recipe: &Recipe,
    max_shard_bytes: u64,
    progress: Option<&(dyn Fn(u64, u64) + Sync)>,
) -> Words<usize> {
    let opened = Model::open(model).map_err(words)?;
    let options = ConvertOptions { recipe: recipe.clone(), max_shard_bytes, progress };
    let converted = convert(&opened, model, out, &options).map_err(words)?;
    Ok(converted.resumed_files)
}

/// The recipe with another choice for prefill.
pub(super) fn with_prefill(recipe: &Recipe, prefill: Prefill) -> Recipe {
    Recipe { prefill, ..recipe.clone() }
}

/// An engine with what its manifest needs.
pub(super) struct Running {
    pub(super) engine: Engine,
    weights: WeightSet,
    checkpoint: Checkpoint,
}

/// Makes an engine.
pub(super) fn start(
    (model, weights): (Model, WeightSet),
    policy: Policy,
    threads: usize,
) -> Words<Running> {
    let options = EngineOptions { threads: Some(threads), ..EngineOptions::with_policy(policy) };
    let engine = Engine::new(Arc::new(model.descriptor), &weights, &options).map_err(words)?;
    Ok(Running { engine, weights, checkpoint: model.checkpoint })
}

/// Logits of the last prompt row, and of every decoded row.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Logits {
    pub(super) prefill: Vec<f32>,
    pub(super) decode: Vec<Vec<f32>>,
}

impl Running {
    /// Runs the prompt in chunks, then single tokens.
    pub(super) fn logits(&self, chunk: usize) -> Words<Logits> {
        let vocab = self.engine.descriptor().vocab as u32;
        let mut sequence = self.engine.sequence().map_err(words)?;
        let prompt = PROMPT.map(|id| id % vocab);
        let mut prefill = Vec::new();
        for part in prompt.chunks(chunk) {
            let output =
                self.engine.prefill(&mut sequence, part, RowWant::Logits).map_err(words)?;
            prefill = output.into_logits().ok_or("no logits came back")?;
        }
        let mut decode = Vec::new();
        for id in DECODED {
            let output =
                self.engine.decode(&mut sequence, id % vocab, RowWant::Logits).map_err(words)?;
            match output.last() {
                RowOutput::Logits(logits) => decode.push(logits.clone()),
                other => return Err(format!("logits were asked for, {other:?} came back")),
            }
        }
        Ok(Logits { prefill, decode })
    }

    /// Names of the manifest blocks in which `other` differs.
    pub(super) fn moved(&self, other: &Running) -> Vec<BlockName> {
        let manifest = |r: &Running| {
            Execution::of(&r.engine, r.weights.source(), Some(&r.checkpoint), 1).manifest()
        };
        compare(&manifest(self), &manifest(other)).differing()
    }
}

/// Every file of a folder with its content.
pub(super) fn contents(folder: &Path) -> Words<BTreeMap<String, Vec<u8>>> {
    let mut files = BTreeMap::new();
    for entry in std::fs::read_dir(folder).map_err(words)? {
        let path = entry.map_err(words)?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        files.insert(name, std::fs::read(&path).map_err(words)?);
    }
    Ok(files)
}
