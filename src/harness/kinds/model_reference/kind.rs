//! The kind: its keys, its cells, and how one is executed.

use super::bounds::{Bounds, F32Bounds, NoiseSource};
use super::files::Files;
use super::logits::LogitRows;
use super::reference::{Array, Prompt, Reference};
use super::{activations, greedy, routes};
use crate::backend::{Policy, RowOutput, RowWant, Taps};
use crate::harness::kind::{
    Case, Cell, DeviceUse, Fault, GateKind, KindSpec, Outcome, PlanScope, PolicyUse, RunContext,
    Verdict,
};
use crate::harness::kinds::loaded::{self, Loaded};
use crate::harness::plan::Matrix;
use serde::Deserialize;
use std::collections::BTreeSet;
use std::path::PathBuf;

/// Rows of a step while logits are compared: bounds the memory that a large vocabulary takes.
const ROWS: usize = 128;

/// A checkpoint and what an independent implementation computed from it.
#[derive(Debug, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::harness::kinds) struct ModelReference {
    /// Folder of the checkpoint.
    model: Option<PathBuf>,
    /// References of it, each a `.json` with the `.safetensors` of the same stem beside it
    /// (docs/references.md).
    reference: Option<Files>,
    /// Bounds under policy `f32`.
    f32: F32Bounds,
    /// Measured noise of the family in BF16, for the policies that round to it; or `measured`: what
    /// the reference says of itself (without that, trials are reported and never pass).
    bf16_noise: NoiseSource,
}

impl KindSpec for ModelReference {
    const NAME: &'static str = "model_reference";
    const DEVICE: DeviceUse = DeviceUse::Any;
    const POLICY: PolicyUse = PolicyUse::Listed;
}

impl GateKind for ModelReference {
    /// Per prompt `logits` and `greedy`; under `f32` also `taps` and `states`, which have no
    /// stated BF16 noise.
    fn cases(&self, scope: &PlanScope) -> Result<Vec<Case>, Fault> {
        let Some(files) = &self.reference else {
            // Its prompts are not known; with `requires: { set: [reference] }` this is a skip.
            return Ok(vec![Case::named("unset")]);
        };
        let mut names = BTreeSet::new();
        let mut cases = Vec::new();
        for file in &files.0 {
            let reference =
                Reference::open(&scope.path(file)).map_err(|e| Fault::at("reference", e))?;
            let found = cases_of(&reference, scope.policy);
            if found.is_empty() {
                let path = reference.path().display();
                return Err(Fault::at("reference", format!("{path} has nothing to compare")));
            }
            cases.extend(found);
            for prompt in reference.prompts {
                if !names.insert(prompt.name.clone()) {
                    let message = format!("two references have a prompt `{}`", prompt.name);
                    return Err(Fault::at("reference", message));
                }
            }
        }
        Ok(cases)
    }

    fn run(&self, cell: &Cell, context: &RunContext) -> Outcome {
        match self.prepare(cell, context) {
            Ok(trial) => trial.run(),
            Err(why) => Outcome::error(why),
        }
    }

    fn group(&self, _cell: &Cell) -> Option<String> {
        self.model.as_ref().map(|model| model.display().to_string())
    }
}

fn cases_of(reference: &Reference, policy: Option<Policy>) -> Vec<Case> {
    let f32 = policy == Some(Policy::F32);
    let kept = |prefix: &str| f32 && !reference.names(prefix).is_empty();
    let (taps, states) = (kept("tap."), kept("state."));
    let mut cases = Vec::new();
    for prompt in &reference.prompts {
        let name = Some(&prompt.name);
        let wanted = [
            ("logits", reference.has_logits(&prompt.name)),
            ("taps", taps && reference.tap_prompt.as_ref() == name),
            ("states", states && reference.state_prompt.as_ref() == name),
            ("greedy", prompt.greedy.is_some()),
        ];
        let wanted = wanted.iter().filter(|(_, wanted)| *wanted).map(|(case, _)| *case);
        cases.extend(Matrix::new().axis("prompt", &[prompt.name.as_str()]).cases(wanted));
    }
    cases
}

impl ModelReference {
    fn prepare(&self, cell: &Cell, context: &RunContext) -> Result<Trial, String> {
        let model = self.model.as_ref().ok_or("the gate names no model; give --set model=DIR")?;
        let files = self.reference.as_ref();
        let files = files.ok_or("the gate names no reference; give --set reference=FILE")?;
        let name: String = cell.read("prompt")?;
        let case = cell.case.clone().unwrap_or_default();
        for file in &files.0 {
            let reference = Reference::open(&context.path(file))?;
            let Some(prompt) = reference.prompts.iter().find(|p| p.name == name).cloned() else {
                continue;
            };
            let bounds = match cell.policy {
                Some(policy) if policy.rounds_to_bf16() => match self.bf16_noise {
                    NoiseSource::Stated(noise) => Bounds::Bf16(noise),
                    NoiseSource::Measured => reference.noise.map_or(Bounds::Unknown, Bounds::Bf16),
                },
                _ => Bounds::F32(self.f32),
            };
            let model = context.path(model);
            let loaded = loaded::load(&model, cell, context)?;
            let exact = match bounds.before_flip() {
                Some(_) => {
                    let exact = Cell { policy: Some(Policy::F32), ..cell.clone() };
                    Some(loaded::load(&model, &exact, context)?)
                }
                None => None,
            };
            return Ok(Trial { case, bounds, loaded, exact, reference, prompt });
        }
        Err(format!("no reference has a prompt `{name}`"))
    }
}

/// One cell, everything at hand.
pub(super) struct Trial {
    pub(super) case: String,
    pub(super) bounds: Bounds,
    pub(super) loaded: std::sync::Arc<Loaded>,
    /// The same model under `f32`, where it matters which experts that chooses.
    pub(super) exact: Option<std::sync::Arc<Loaded>>,
    pub(super) reference: Reference,
    pub(super) prompt: Prompt,
}

impl Trial {
    pub(super) fn run(&self) -> Outcome {
        let outcome = match self.case.as_str() {
            "logits" => self.logits(),
            "greedy" => self.greedy(),
            "taps" => self.taps(),
            "states" => self.states(),
            other => Err(format!("no check is called `{other}`")),
        };
        let mut outcome = outcome.unwrap_or_else(Outcome::fail);
        if outcome.verdict == Verdict::Fail
            && let Some(why) = self.reference.foreign_weights(&self.loaded.checkpoint)
        {
            outcome.message = format!("{}; {why}", outcome.message);
        }
        outcome
    }

    fn logits(&self) -> Result<Outcome, String> {
        let logits = self.reference.logits(&self.prompt)?;
        let mut rows = LogitRows::new(&logits);
        let mut sequence = self.loaded.sequence()?;
        for chunk in self.prompt.ids.chunks(ROWS) {
            for row in self.loaded.logits(&mut sequence, chunk)? {
                rows.push(&row)?;
            }
        }
        let untouched = self.rows_before_a_flip(&self.prompt.ids)?;
        Ok(rows.outcome(self.prompt.ids.len(), untouched, self.bounds))
    }

    fn rows_before_a_flip(&self, tokens: &[u32]) -> Result<usize, String> {
        match &self.exact {
            Some(exact) => routes::rows_before_a_flip(exact, &self.loaded, tokens),
            None => Ok(tokens.len()),
        }
    }

    fn greedy(&self) -> Result<Outcome, String> {
        let reference = self.prompt.greedy.as_ref().ok_or("the prompt has no continuation")?;
        let mut sequence = self.loaded.sequence()?;
        let mut next = |tokens: &[u32]| match self
            .loaded
            .rows(&mut sequence, tokens, RowWant::Greedy, None)?
            .last()
        {
            Some(RowOutput::Greedy(id)) => Ok(*id),
            other => Err(format!("an arg-max was asked for, {other:?} came back")),
        };
        let fed = &reference.tokens[..reference.tokens.len() - 1];
        let mut found = vec![next(&self.prompt.ids)?];
        for token in fed {
            found.push(next(&[*token])?);
        }
        // The last row of the prompt is that of step 0.
        let before = self.prompt.ids.len() - 1;
        let untouched = self.rows_before_a_flip(&[&self.prompt.ids, fed].concat())?;
        Ok(greedy::outcome(reference, &found, untouched.saturating_sub(before), self.bounds))
    }

    fn taps(&self) -> Result<Outcome, String> {
        let mut taps = Taps::standard();
        let mut sequence = self.loaded.sequence()?;
        self.loaded.rows(&mut sequence, &self.prompt.ids, RowWant::Hidden, Some(&mut taps))?;
        let captured = taps.captured();
        activations::outcome(&self.reference, "tap.", self.max_relative()?, |name| {
            let tap = captured.get(name)?;
            let rows = tap.values.len().checked_div(tap.width)?;
            Some(Array { shape: vec![rows, tap.width], values: tap.values.clone() })
        })
    }

    fn states(&self) -> Result<Outcome, String> {
        let mut sequence = self.loaded.sequence()?;
        for chunk in self.prompt.ids.chunks(ROWS) {
            self.loaded.rows(&mut sequence, chunk, RowWant::Nothing, None)?;
        }
        let states = sequence.inspect().map_err(|e| e.to_string())?;
        activations::outcome(&self.reference, "state.", self.max_relative()?, |name| {
            let state = states.iter().find(|s| s.name == name)?;
            Some(Array { shape: state.shape.clone(), values: state.values.clone() })
        })
    }

    fn max_relative(&self) -> Result<f64, String> {
        match self.bounds {
            Bounds::F32(bounds) => Ok(bounds.activations_max_relative.get()),
            Bounds::Bf16(_) | Bounds::Unknown => {
                Err("activations have bounds under `f32` alone".into())
            }
        }
    }
}
