//! The gate: one trial per check.

use super::checks::{CHECKS, Stage};
use crate::backend::{DeviceKind, Policy};
use crate::harness::kind::{
    Case, Cell, DeviceUse, Fault, GateKind, KindSpec, Outcome, PlanScope, PolicyUse, RunContext,
};
use crate::harness::kinds::loaded::load;
use serde::Deserialize;
use std::path::PathBuf;

/// Truncate, checkpoint, restore, fork and reset, each compared bit for bit with a straight run, and
/// every misuse refused with nothing changed.
#[derive(Debug, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::harness::kinds) struct StateCheckpoint {
    /// Folder of the checkpoint.
    model: PathBuf,
}

impl KindSpec for StateCheckpoint {
    const NAME: &'static str = "state_checkpoint";
    const DEVICE: DeviceUse = DeviceUse::Any;
    const POLICY: PolicyUse = PolicyUse::Listed;
}

impl GateKind for StateCheckpoint {
    fn cases(&self, _scope: &PlanScope) -> Result<Vec<Case>, Fault> {
        Ok(CHECKS.iter().map(|(name, _)| Case::named(*name)).collect())
    }

    /// A policy whose bits depend on how rows are cut into steps makes no such claim.
    fn not_applicable(&self, device: DeviceKind, policy: Policy) -> Option<String> {
        policy.no_invariance(device)
    }

    fn run(&self, cell: &Cell, context: &RunContext) -> Outcome {
        let name = cell.case.as_deref().unwrap_or_default();
        let Some((_, check)) = CHECKS.iter().find(|(n, _)| *n == name) else {
            return Outcome::error(format!("there is no check `{name}`"));
        };
        match load(&context.path(&self.model), cell, context) {
            Err(why) => Outcome::error(why),
            Ok(loaded) => match check(&Stage { engine: &loaded.engine }) {
                Ok(compared) => Outcome::pass(format!("{compared} comparisons bitwise equal"))
                    .with("comparisons", compared),
                Err(why) => Outcome::fail(why),
            },
        }
    }

    fn group(&self, cell: &Cell) -> Option<String> {
        Some(format!("{} {:?}", self.model.display(), cell.policy))
    }
}
