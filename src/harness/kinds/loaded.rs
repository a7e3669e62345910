//! A checkpoint with its engine, loaded once for the trials of a worker process.

use super::packing::Packing;
use crate::backend::{RowOutput, RowWant, Taps};
use crate::engine::{Batch, Engine, EngineOptions, Output, Sequence, Want};
use crate::harness::kind::{Cell, RunContext};
use crate::units::SplitMix64;
use crate::weights::{Checkpoint, Model};
use std::path::Path;
use std::sync::Arc;

/// Most rows of one step: enough for any prompt of a gate in one piece.
const CHUNK_TOKENS: usize = 8192;

/// A model that a trial executes.
#[derive(Debug)]
pub(super) struct Loaded {
    pub(super) checkpoint: Checkpoint,
    pub(super) engine: Engine,
}

/// The model of a folder on the device and under the policy of a cell.
///
/// # Errors
/// A sentence: the folder is no checkpoint, or the engine refuses it.
pub(super) fn load(
    folder: &Path,
    cell: &Cell,
    context: &RunContext,
) -> Result<Arc<Loaded>, String> {
    load_packed(folder, None, cell, context)
}

/// As [`load`], with some roles packed into four bits in memory.
///
/// # Errors
/// As [`load`], and what cannot be packed.
pub(super) fn load_packed(
    folder: &Path,
    packing: Option<&Packing>,
    cell: &Cell,
    context: &RunContext,
) -> Result<Arc<Loaded>, String> {
    let policy = cell.policy.ok_or("the cell has no policy")?;
    let key = format!("model {} {packing:?} {} {policy}", folder.display(), cell.device);
    context.cache.get_or_make(&key, || {
        let model = Model::open(folder).map_err(|e| e.to_string())?;
        let mut weights = model.checkpoint.load(&model.descriptor).map_err(|e| e.to_string())?;
        if let Some(packing) = packing {
            let packed = weights.quantise(&model.descriptor, &packing.recipe()?);
            weights = packed.map_err(|e| e.to_string())?;
        }
        let options = EngineOptions {
            device: cell.device.first(),
            threads: Some(context.threads),
            chunk_tokens: CHUNK_TOKENS,
            ..EngineOptions::with_policy(policy)
        };
        let engine = Engine::new(Arc::new(model.descriptor), &weights, &options)
            .map_err(|e| format!("{}: {e}", folder.display()))?;
        Ok(Loaded { checkpoint: model.checkpoint, engine })
    })
}

/// Ids from the whole vocabulary, drawn by a seed.
pub(super) fn prompt(seed: u64, length: usize, vocab: usize) -> Vec<u32> {
    let mut words = SplitMix64::new(seed);
    (0..length).map(|_| (words.next_word() % vocab as u64) as u32).collect()
}

impl Loaded {
    /// An empty sequence.
    ///
    /// # Errors
    /// The engine refuses it.
    pub(super) fn sequence(&self) -> Result<Sequence, String> {
        self.engine.sequence().map_err(|e| e.to_string())
    }

    /// Feeds tokens as one entry and gives what `want` asks of every row.
    ///
    /// # Errors
    /// The engine refuses them or fails.
    pub(super) fn rows(
        &self,
        sequence: &mut Sequence,
        tokens: &[u32],
        want: RowWant,
        taps: Option<&mut Taps>,
    ) -> Result<Vec<RowOutput>, String> {
        let mut batch = Batch::new();
        batch.push(sequence, tokens, Want::Every(want));
        let output: Output = self
            .engine
            .forward_tapped(&mut batch, taps)
            .swap_remove(0)
            .map_err(|e| e.to_string())?;
        if output.rows.len() == tokens.len() {
            return Ok(output.rows);
        }
        Err(format!("{} rows came back for {} tokens", output.rows.len(), tokens.len()))
    }

    /// Feeds tokens and gives the logits of every row.
    ///
    /// # Errors
    /// As [`Loaded::rows`].
    pub(super) fn logits(
        &self,
        sequence: &mut Sequence,
        tokens: &[u32],
    ) -> Result<Vec<Vec<f32>>, String> {
        let rows = self.rows(sequence, tokens, RowWant::Logits, None)?;
        rows.into_iter()
            .map(|row| match row {
                RowOutput::Logits(logits) => Ok(logits),
                other => Err(format!("logits were asked for, {other:?} came back")),
            })
            .collect()
    }
}
