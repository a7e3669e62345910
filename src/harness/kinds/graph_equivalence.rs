//! `graph_equivalence`: decode steps captured as graphs have the bits of the same launches one by one.

use super::loaded::{Loaded, prompt};
use super::trace::{Trace, compare};
use crate::backend::{DeviceKind, RowOutput, RowWant};
use crate::engine::{Batch, Engine, EngineOptions, Sequence, Want};
use crate::harness::kind::{
    Case, Cell, DeviceUse, Fault, GateKind, KindSpec, Outcome, PlanScope, PolicyUse, RunContext,
};
use crate::harness::plan::Matrix;
use crate::harness::spec::NonEmpty;
use crate::weights::Model;
use serde::Deserialize;
use std::path::PathBuf;
use std::sync::Arc;

/// Fewest joint steps: the first of a bucket is launched, the second captured, later ones replayed.
const FEWEST_STEPS: usize = 4;

/// A model, and how many sequences decode together behind pasts of which lengths.
///
/// Two engines prefill every sequence by itself and then decode all of them a token at a time, one with
/// graphs and one without. A graph is captured for a bucket of rows and of key blocks and launched over
/// its upper bounds: with three sequences one row of four is padding, and a past that grows over the
/// end of a block changes the bucket. Every logit and all live state must be equal bit for bit.
/// Activation buffers are filled with NaN before every step.
#[derive(Debug, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct GraphEquivalence {
    /// Folder of the checkpoint.
    model: PathBuf,
    /// Sequences that decode together.
    sequences: NonEmpty<usize>,
    /// Length of the first sequence's prompt; each further one is a token shorter, down to one.
    prompt_tokens: NonEmpty<usize>,
    /// Joint steps.
    decode_tokens: usize,
    seed: u64,
}

impl KindSpec for GraphEquivalence {
    const NAME: &'static str = "graph_equivalence";
    const DEVICE: DeviceUse = DeviceUse::Any;
    const POLICY: PolicyUse = PolicyUse::Listed;
}

impl GateKind for GraphEquivalence {
    fn cases(&self, scope: &PlanScope) -> Result<Vec<Case>, Fault> {
        if scope.device != DeviceKind::Cuda {
            return Err(Fault::from(
                "steps are captured on CUDA devices: expected `requires: { device: cuda }`"
                    .to_owned(),
            ));
        }
        if self.sequences.contains(&0) {
            return Err(Fault::at("sequences", "a step needs at least one sequence"));
        }
        if self.prompt_tokens.contains(&0) {
            return Err(Fault::at("prompt_tokens", "a prompt needs at least one token"));
        }
        if self.decode_tokens < FEWEST_STEPS {
            let message = format!("with fewer than {FEWEST_STEPS} steps hardly any is a replay");
            return Err(Fault::at("decode_tokens", message));
        }
        let matrix = Matrix::new()
            .axis("sequences", &self.sequences)
            .axis("prompt_tokens", &self.prompt_tokens);
        Ok(matrix.unnamed())
    }

    fn run(&self, cell: &Cell, context: &RunContext) -> Outcome {
        self.trial(cell, context).unwrap_or_else(Outcome::error)
    }

    fn group(&self, _cell: &Cell) -> Option<String> {
        Some(self.model.display().to_string())
    }
}

impl GraphEquivalence {
    fn trial(&self, cell: &Cell, context: &RunContext) -> Result<Outcome, String> {
        let sequences: usize = cell.read("sequences")?;
        let prompt_tokens: usize = cell.read("prompt_tokens")?;
        let run = |graphs: bool| -> Result<Run, String> {
            let loaded = self.load(graphs, cell, context)?;
            let vocab = loaded.engine.descriptor().vocab;
            let prompts: Vec<Vec<u32>> = (0..sequences)
                .map(|i| {
                    let length = prompt_tokens.saturating_sub(i).max(1);
                    prompt(self.seed + i as u64, length + self.decode_tokens, vocab)
                })
                .collect();
            execute(&loaded.engine, &prompts, self.decode_tokens)
        };
        Ok(judge(&run(false)?, &run(true)?))
    }

    fn load(&self, graphs: bool, cell: &Cell, context: &RunContext) -> Result<Arc<Loaded>, String> {
        let policy = cell.policy.ok_or("the cell has no policy")?;
        let folder = context.path(&self.model);
        let key = format!("graphs {graphs} {} {} {policy}", folder.display(), cell.device);
        context.cache.get_or_make(&key, || {
            let model = Model::open(&folder).map_err(|e| e.to_string())?;
            let weights = model.checkpoint.load(&model.descriptor).map_err(|e| e.to_string())?;
            let options = EngineOptions {
                device: cell.device.first(),
                threads: Some(context.threads),
                poison: true,
                graphs,
                ..EngineOptions::with_policy(policy)
            };
            let engine = Engine::new(Arc::new(model.descriptor), &weights, &options)
                .map_err(|e| format!("{}: {e}", folder.display()))?;
            Ok::<Loaded, String>(Loaded { checkpoint: model.checkpoint, engine })
        })
    }
}

/// What an engine gave, and how many of the joint steps were replays.
struct Run {
    trace: Trace,
    replayed: u64,
}

/// Prefills all but the last `steps` tokens of every prompt, then takes those jointly.
fn execute(engine: &Engine, prompts: &[Vec<u32>], steps: usize) -> Result<Run, String> {
    let mut sequences: Vec<Sequence> = Vec::new();
    for tokens in prompts {
        let mut sequence = engine.sequence().map_err(|e| e.to_string())?;
        let mut batch = Batch::new();
        batch.push(&mut sequence, &tokens[..tokens.len() - steps], Want::Last(RowWant::Logits));
        engine.forward(&mut batch).swap_remove(0).map_err(|e| e.to_string())?;
        sequences.push(sequence);
    }
    let before = engine.replayed_steps();
    let mut logits = Vec::new();
    for step in 0..steps {
        let mut batch = Batch::new();
        for (sequence, tokens) in sequences.iter_mut().zip(prompts) {
            let at = tokens.len() - steps + step;
            batch.push(sequence, &tokens[at..=at], Want::Every(RowWant::Logits));
        }
        for output in engine.forward(&mut batch) {
            match output.map_err(|e| e.to_string())?.rows.pop() {
                Some(RowOutput::Logits(row)) => logits.push(row),
                other => return Err(format!("logits were asked for, {other:?} came back")),
            }
        }
    }
    let replayed = engine.replayed_steps() - before;
    let mut state = Vec::new();
    for sequence in &sequences {
        state.extend(sequence.live().map_err(|e| e.to_string())?);
    }
    Ok(Run { trace: Trace { logits, state }, replayed })
}

/// Decides: only the second replayed, and gave the bits of the first.
fn judge(launched: &Run, captured: &Run) -> Outcome {
    if launched.replayed != 0 || captured.replayed == 0 {
        return Outcome::error(format!(
            "{} steps were replays without graphs and {} with them: nothing was compared",
            launched.replayed, captured.replayed
        ));
    }
    compare(&launched.trace, &captured.trace).with("replayed_steps", captured.replayed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::kind::Verdict;

    #[test]
    fn without_a_replay_nothing_was_compared() {
        let run = |replayed| Run {
            trace: Trace { logits: vec![vec![0.5]], state: Vec::new() },
            replayed,
        };
        assert_eq!(judge(&run(0), &run(3)).verdict, Verdict::Pass);
        assert_eq!(judge(&run(0), &run(0)).verdict, Verdict::Error);
        assert_eq!(judge(&run(2), &run(3)).verdict, Verdict::Error);
    }
}
