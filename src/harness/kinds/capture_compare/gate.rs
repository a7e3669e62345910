//! The gate: what is compared, and how each comparison must end.

use super::edit::Edit;
use super::recorded::{Base, Side};
use crate::backend::Policy;
use crate::harness::NonEmpty;
use crate::harness::capture::{Across, Mode, compare};
use crate::harness::kind::{
    Case, Cell, DeviceUse, Fault, GateKind, KindSpec, Outcome, PlanScope, PolicyUse, RunContext,
};
use crate::units::Exit;
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

/// How comparisons of captures end.
#[derive(Debug, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::harness::kinds) struct CaptureCompare {
    /// Model folder.
    model: PathBuf,
    /// Token ids by name.
    prompts: BTreeMap<String, NonEmpty<u32>>,
    /// Greedy tokens after each prompt.
    greedy_steps: usize,
    /// One trial each.
    comparisons: NonEmpty<Comparison>,
}

/// One comparison: the left capture is recorded plainly under `reference`, the right one as said.
#[derive(Debug, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
struct Comparison {
    /// Part of the trial name.
    name: String,
    /// Policy of the right capture.
    policy: Option<Policy>,
    /// Tokens of its prefill steps at most.
    chunk_tokens: Option<usize>,
    /// One thing altered afterwards.
    edit: Option<Edit>,
    #[serde(default)]
    mode: ModeName,
    across: Option<AcrossName>,
    #[serde(default)]
    deployment_scoped: bool,
    expect: Expect,
    /// Part of what the comparison says.
    because: Option<String>,
}

#[derive(Clone, Copy, Debug, Default, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
enum ModeName {
    #[default]
    Strict,
    Diagnostic,
}

#[derive(Clone, Copy, Debug, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
enum AcrossName {
    Builds,
    Machines,
}

/// How a comparison ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Expect {
    /// Exit code 0.
    Pass,
    /// Exit code 1.
    Fail,
    /// Exit code 2.
    Legacy,
    /// Exit code 3.
    Diagnostic,
}

impl Expect {
    fn exit(self) -> Exit {
        match self {
            Expect::Pass => Exit::Success,
            Expect::Fail => Exit::Fail,
            Expect::Legacy => Exit::Legacy,
            Expect::Diagnostic => Exit::Diagnostic,
        }
    }
}

impl Comparison {
    fn mode(&self) -> Mode {
        match self.mode {
            ModeName::Diagnostic => Mode::Diagnostic,
            ModeName::Strict => Mode::Strict {
                across: self.across.map(|a| match a {
                    AcrossName::Builds => Across::Builds,
                    AcrossName::Machines => Across::Machines,
                }),
                deployment_scoped: self.deployment_scoped,
            },
        }
    }
}

impl KindSpec for CaptureCompare {
    const NAME: &'static str = "capture_compare";
    const DEVICE: DeviceUse = DeviceUse::Host;
    const POLICY: PolicyUse = PolicyUse::None;
}

impl GateKind for CaptureCompare {
    fn cases(&self, _scope: &PlanScope) -> Result<Vec<Case>, Fault> {
        if self.prompts.is_empty() {
            return Err(Fault::at("prompts", "no prompt is given"));
        }
        let mut names = BTreeSet::new();
        if let Some(twice) = self.comparisons.iter().find(|c| !names.insert(&c.name)) {
            let message = format!("the name `{}` is given twice", twice.name);
            return Err(Fault::at("comparisons", message));
        }
        Ok(self.comparisons.iter().map(|c| Case::named(&c.name)).collect())
    }

    fn run(&self, cell: &Cell, context: &RunContext) -> Outcome {
        self.decide(cell, context).unwrap_or_else(Outcome::error)
    }

    fn group(&self, _cell: &Cell) -> Option<String> {
        Some(self.model.display().to_string())
    }
}

impl CaptureCompare {
    fn decide(&self, cell: &Cell, context: &RunContext) -> Result<Outcome, String> {
        let name = cell.case.as_deref().unwrap_or_default();
        let case = self.comparisons.iter().find(|c| c.name == name).ok_or("no such comparison")?;
        let folder = context.path(&self.model);
        let base = Base::open(&folder, &self.prompts, self.greedy_steps, context)?;
        let right = Side { policy: case.policy, chunk_tokens: case.chunk_tokens, edit: case.edit };
        let left =
            base.capture(&Side { edit: case.edit.filter(|e| e.both()), ..Side::PLAIN }, "left")?;
        let right = base.capture(&right, "right")?;
        let found = compare(&left, &right, case.mode());
        let said = found.to_json().to_string();
        let (expected, exit) = (case.expect.exit(), found.exit());
        let because = case.because.as_deref().unwrap_or_default();
        let outcome = if exit != expected {
            Outcome::fail(format!(
                "expected exit code {}, found {}: {}",
                expected.code(),
                exit.code(),
                found.verdict()
            ))
        } else if !said.contains(because) {
            Outcome::fail(format!("expected the comparison to say {because:?}; it said {said}"))
        } else {
            Outcome::pass(found.verdict())
        };
        let differing = found.manifests.iter().flat_map(|m| m.differing());
        let differing: Vec<&str> = differing.map(|b| b.as_str()).collect();
        Ok(outcome
            .with("exit", exit.code())
            .with("arrays", found.arrays.len())
            .with("arrays_equal", found.arrays.iter().filter(|a| a.equal()).count())
            .with("blocks_different", differing))
    }
}
