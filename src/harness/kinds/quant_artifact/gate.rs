//! The gate: models, roles, and what is claimed of their conversions.

use super::checks::{Claim, Subject};
use crate::descriptor::{RoleName, Word as _};
use crate::harness::kind::{
    Case, Cell, DeviceUse, Fault, GateKind, KindSpec, Outcome, PlanScope, PolicyUse, RunContext,
};
use crate::harness::plan::Matrix;
use crate::harness::spec::NonEmpty;
use crate::weights::{Prefill, Recipe};
use serde::Deserialize;
use std::collections::BTreeSet;
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
}

impl KindSpec for QuantArtifact {
    const NAME: &'static str = "quant_artifact";
    const DEVICE: DeviceUse = DeviceUse::Any;
    const POLICY: PolicyUse = PolicyUse::Listed;
}

impl GateKind for QuantArtifact {
    fn cases(&self, _scope: &PlanScope) -> Result<Vec<Case>, Fault> {
        self.recipe().map_err(|message| Fault::at("roles", message))?;
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

/// Roles that can be packed, by name.
///
/// # Errors
/// A sentence that names the first other.
pub(in crate::harness::kinds) fn projections(
    names: &[String],
) -> Result<BTreeSet<RoleName>, String> {
    let role = |name: &String| {
        RoleName::parse(name)
            .filter(|role| role.is_projection())
            .ok_or_else(|| format!("`{name}` is no role that can be packed"))
    };
    names.iter().map(role).collect()
}
