//! The gate: one trial per check.

use super::checks::{CHECKS, Stage};
use super::device::DEVICE_CHECKS;
use crate::backend::DeviceKind;
use crate::harness::kind::{
    Case, Cell, DeviceUse, Fault, GateKind, KindSpec, Outcome, PlanScope, PolicyUse, RunContext,
};
use serde::Deserialize;
use std::path::PathBuf;

/// Every byte of sequences and failed loads comes back, requests beyond a limit are refused by name
/// with the next one served, and a failing sequence touches no other.
#[derive(Debug, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::harness::kinds) struct ResourceSafety {
    /// Folder of the checkpoint.
    model: PathBuf,
}

impl KindSpec for ResourceSafety {
    const NAME: &'static str = "resource_safety";
    const DEVICE: DeviceUse = DeviceUse::Any;
    const POLICY: PolicyUse = PolicyUse::Listed;
}

impl GateKind for ResourceSafety {
    fn cases(&self, scope: &PlanScope) -> Result<Vec<Case>, Fault> {
        let device: &[_] = if scope.device == DeviceKind::Cuda { DEVICE_CHECKS } else { &[] };
        Ok(CHECKS.iter().chain(device).map(|(name, _)| Case::named(*name)).collect())
    }

    fn run(&self, cell: &Cell, context: &RunContext) -> Outcome {
        let name = cell.case.as_deref().unwrap_or_default();
        let Some((_, check)) = CHECKS.iter().chain(DEVICE_CHECKS).find(|(n, _)| *n == name) else {
            return Outcome::error(format!("there is no check `{name}`"));
        };
        let Some(policy) = cell.policy else { return Outcome::error("the cell has no policy") };
        let stage = Stage {
            model: context.path(&self.model),
            policy,
            device: cell.device,
            threads: context.threads,
            scratch: context.scratch.clone(),
        };
        match check(&stage) {
            Ok(evidence) => evidence
                .into_iter()
                .fold(Outcome::pass("holds"), |outcome, (k, v)| outcome.with(k, v)),
            Err(why) => Outcome::fail(why),
        }
    }
}
