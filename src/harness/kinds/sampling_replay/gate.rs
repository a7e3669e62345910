//! The gate: its keys, its trials.

use super::check::Subject;
use super::spec::Check;
use crate::harness::NonEmpty;
use crate::harness::kind::{
    Case, Cell, DeviceUse, Fault, GateKind, KindSpec, Outcome, PlanScope, PolicyUse, RunContext,
};
use serde::Deserialize;

/// Sampling replays exactly.
#[derive(Debug, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::harness::kinds) struct SamplingReplay {
    /// What is checked, one trial each.
    checks: NonEmpty<NamedCheck>,
}

#[derive(Debug, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct NamedCheck {
    /// Part of the trial name.
    pub(super) name: String,
    pub(super) check: Check,
}

impl KindSpec for SamplingReplay {
    const NAME: &'static str = "sampling_replay";
    const DEVICE: DeviceUse = DeviceUse::Host;
    const POLICY: PolicyUse = PolicyUse::None;
}

impl GateKind for SamplingReplay {
    fn cases(&self, _scope: &PlanScope) -> Result<Vec<Case>, Fault> {
        for NamedCheck { name, check } in self.checks.iter() {
            check.validate().map_err(|m| Fault::at("checks", format!("`{name}`: {m}")))?;
        }
        Ok(self.checks.iter().map(|c| Case::named(&c.name)).collect())
    }

    fn run(&self, cell: &Cell, _context: &RunContext) -> Outcome {
        let name = cell.case.as_deref().unwrap_or_default();
        match self.checks.iter().find(|c| c.name == name) {
            None => Outcome::error(format!("the gate has no check `{name}`")),
            Some(named) => match named.check.run(&Subject::PRODUCT) {
                Ok(message) => Outcome::pass(message),
                Err(message) => Outcome::fail(message),
            },
        }
    }
}
