//! `fusion_equivalence`: a plan with merged operations gives the bits of the plan without.

use super::loaded::{self, Loaded, prompt};
use super::packing::projections;
use super::trace::{Trace, compare};
use crate::backend::Fusion;
use crate::engine::{Engine, EngineOptions};
use crate::harness::kind::{
    Case, Cell, DeviceUse, Fault, GateKind, KindSpec, Outcome, PlanScope, PolicyUse, RunContext,
};
use crate::harness::plan::{AxisValue, Matrix};
use crate::harness::spec::NonEmpty;
use crate::weights::{Prefill, Recipe};
use serde::Deserialize;
use std::path::PathBuf;
use std::sync::Arc;

/// A model, the fusions, and the prompts over which they are compared with the plain plan.
///
/// A prompt is one step (several rows); `decode_tokens` more follow one by one. Every logit and all
/// live state must be equal bit for bit. With `packed_roles`, both plans read the same weights of four
/// bits.
#[derive(Debug, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct FusionEquivalence {
    /// Folder of the checkpoint.
    model: PathBuf,
    /// One trial each; `all` takes every fusion together.
    fusions: NonEmpty<Choice>,
    /// Lengths of prompts; their ids are drawn from the whole vocabulary by `seed`.
    prompt_tokens: NonEmpty<usize>,
    decode_tokens: usize,
    seed: u64,
    /// Roles in four bits; none without it. One trial each with their BF16 weights kept for prefill
    /// and without.
    #[serde(default)]
    packed_roles: Vec<String>,
}

/// What may execute prefill beside packed weights.
const PREFILL: [Prefill; 2] = [Prefill::Bf16, Prefill::Packed];

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Choice {
    GateUp,
    ResidualNorm,
    All,
}

impl AxisValue for Choice {
    fn axis_text(&self) -> String {
        match self {
            Choice::GateUp => Fusion::GateUp.to_string(),
            Choice::ResidualNorm => Fusion::ResidualNorm.to_string(),
            Choice::All => "all".to_owned(),
        }
    }
}

impl KindSpec for FusionEquivalence {
    const NAME: &'static str = "fusion_equivalence";
    const DEVICE: DeviceUse = DeviceUse::Any;
    const POLICY: PolicyUse = PolicyUse::Listed;
}

impl GateKind for FusionEquivalence {
    fn cases(&self, _scope: &PlanScope) -> Result<Vec<Case>, Fault> {
        if self.prompt_tokens.contains(&0) {
            return Err(Fault::at("prompt_tokens", "a prompt needs at least one token"));
        }
        projections(&self.packed_roles).map_err(|message| Fault::at("packed_roles", message))?;
        let mut matrix =
            Matrix::new().axis("fusion", &self.fusions).axis("prompt_tokens", &self.prompt_tokens);
        if !self.packed_roles.is_empty() {
            matrix = matrix.axis("prefill", &PREFILL.map(|prefill| prefill.to_string()));
        }
        Ok(matrix.unnamed())
    }

    fn run(&self, cell: &Cell, context: &RunContext) -> Outcome {
        self.trial(cell, context).unwrap_or_else(Outcome::error)
    }

    fn group(&self, _cell: &Cell) -> Option<String> {
        Some(self.model.display().to_string())
    }
}

impl FusionEquivalence {
    fn trial(&self, cell: &Cell, context: &RunContext) -> Result<Outcome, String> {
        let name: String = cell.read("fusion")?;
        let fusions = match name.as_str() {
            "all" => Fusion::ALL.to_vec(),
            one => vec![one.parse::<Fusion>()?],
        };
        let plain = self.load(&[], cell, context)?;
        let fused = self.load(&fusions, cell, context)?;
        let merged = plain.engine.plan().ops.len() - fused.engine.plan().ops.len();
        if merged == 0 {
            return Err(format!("`{name}` merges no operation of this model"));
        }
        let length: usize = cell.read("prompt_tokens")?;
        let vocab = plain.engine.descriptor().vocab;
        let ids = prompt(self.seed, length + self.decode_tokens, vocab);
        let expected = execute(&plain, &ids, length)?;
        let found = execute(&fused, &ids, length)?;
        Ok(compare(&expected, &found).with("operations_merged", merged))
    }

    /// The model with these fusions, and the packed roles that the cell asks for.
    fn load(
        &self,
        fusions: &[Fusion],
        cell: &Cell,
        context: &RunContext,
    ) -> Result<Arc<Loaded>, String> {
        let plain = loaded::load(&context.path(&self.model), cell, context)?;
        let prefill = match self.packed_roles.is_empty() {
            true => None,
            false => {
                let name: String = cell.read("prefill")?;
                let found = PREFILL.into_iter().find(|p| p.to_string() == name);
                Some(found.ok_or("the cell names no prefill")?)
            }
        };
        if prefill.is_none() && fusions.is_empty() {
            return Ok(plain);
        }
        let key = format!(
            "fused {} {} {:?} {fusions:?} {prefill:?}",
            self.model.display(),
            cell.device,
            cell.policy
        );
        context.cache.get_or_make(&key, || {
            let descriptor = plain.engine.descriptor();
            let mut weights = plain.checkpoint.load(descriptor).map_err(|e| e.to_string())?;
            if let Some(prefill) = prefill {
                let roles = projections(&self.packed_roles)?;
                let recipe = Recipe { roles, group: None, prefill };
                weights = weights.quantise(descriptor, &recipe).map_err(|e| e.to_string())?;
            }
            let options = EngineOptions {
                device: cell.device.first(),
                fusions: fusions.to_vec(),
                chunk_tokens: plain.engine.chunk_tokens(),
                threads: Some(context.threads),
                ..EngineOptions::with_policy(plain.engine.policy())
            };
            let engine = Engine::new(descriptor.clone(), &weights, &options);
            let engine = engine.map_err(|e| e.to_string())?;
            Ok::<Loaded, String>(Loaded { checkpoint: plain.checkpoint.clone(), engine })
        })
    }
}

fn execute(loaded: &Loaded, ids: &[u32], prompt: usize) -> Result<Trace, String> {
    let mut sequence = loaded.sequence()?;
    let (prompt, rest) = ids.split_at(prompt);
    let mut logits = loaded.logits(&mut sequence, prompt)?;
    for id in rest {
        logits.extend(loaded.logits(&mut sequence, &[*id])?);
    }
    Ok(Trace { logits, state: sequence.live().map_err(|e| e.to_string())? })
}
