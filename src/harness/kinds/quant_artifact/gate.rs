//! The gate: models, roles, and what is claimed of their conversions.

use super::checks::{Claim, Subject};
use super::values::Quality;
use crate::backend::Policy;
use crate::harness::kind::{
    Case, Cell, DeviceUse, Fault, GateKind, KindSpec, Outcome, PlanScope, PolicyUse, RunContext,
};
use crate::harness::kinds::packing::projections;
use crate::harness::plan::Matrix;
use crate::harness::spec::{NonEmpty, Tolerance};
use crate::weights::{Prefill, Recipe};
use serde::Deserialize;
use std::path::PathBuf;

/// Folders of packed weights.
#[derive(Debug, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::harness::kinds) struct QuantArtifact {
    /// Folder of the model to pack.
    model: PathBuf,
    /// Roles that are packed.
    roles: NonEmpty<String>,
    /// Values along K that share a scale; without it the most that divide K, role by role.
    #[serde(default)]
    group_size: Option<usize>,
    /// What is claimed, one case each.
    claims: NonEmpty<Claim>,
    /// How far logits under `fast` may be from those of the dequantised weights in FP32; goes with
    /// `of_dequantised`.
    #[serde(default)]
    fast: Option<Tolerance>,
    /// Budgets; goes with `quality`.
    #[serde(default)]
    quality: Option<Quality>,
}

impl KindSpec for QuantArtifact {
    const NAME: &'static str = "quant_artifact";
    const DEVICE: DeviceUse = DeviceUse::Any;
    const POLICY: PolicyUse = PolicyUse::Listed;
}

impl GateKind for QuantArtifact {
    fn cases(&self, scope: &PlanScope) -> Result<Vec<Case>, Fault> {
        self.recipe().map_err(|message| Fault::at("roles", message))?;
        let claimed = |claim| self.claims.contains(&claim);
        if claimed(Claim::Quality) != self.quality.is_some() {
            return Err(Fault::at("quality", "the claim `quality` and its budgets go together"));
        }
        if let Some(problem) = self.quality.as_ref().and_then(Quality::problem) {
            return Err(Fault::at("quality", problem));
        }
        let needed = claimed(Claim::OfDequantised) && scope.policy == Some(Policy::Fast);
        if needed && self.fast.is_none() {
            return Err(Fault::at(
                "fast",
                "the claim `of_dequantised` needs a tolerance of `fast`",
            ));
        }
        Ok(Matrix::new().cases(self.claims.iter().map(|c| c.name())))
    }

    fn run(&self, cell: &Cell, context: &RunContext) -> Outcome {
        let trial = || {
            let claim = Claim::ALL.iter().find(|c| cell.case.as_deref() == Some(c.name()));
            claim.ok_or("the cell names no claim")?.decide(Subject {
                model: &context.path(&self.model),
                recipe: &self.recipe()?,
                policy: cell.policy.ok_or("the cell has no policy")?,
                threads: context.threads,
                scratch: &context.scratch,
                fast: self.fast.as_ref(),
                quality: self.quality.as_ref(),
            })
        };
        trial().unwrap_or_else(Outcome::error)
    }
}

impl QuantArtifact {
    fn recipe(&self) -> Result<Recipe, String> {
        let roles = projections(&self.roles)?;
        Ok(Recipe { roles, group: self.group_size, prefill: Prefill::Packed })
    }
}
