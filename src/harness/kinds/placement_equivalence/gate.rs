//! The gate: placements, each in three checks.

use super::engines::ModelSource;
use super::identity;
use super::trace::{Trace, compare};
use crate::harness::kind::{
    Case, Cell, DeviceUse, Fault, GateKind, KindSpec, Outcome, PlanScope, PolicyUse, RunContext,
};
use crate::harness::kinds::placement_plan::Ranks;
use crate::harness::kinds::state_checkpoint::{CHECKS, Stage};
use crate::harness::plan::{AxisValue as _, Matrix};
use crate::harness::spec::{Check, Expectations, NonEmpty, Select, find};
use crate::placement::Placement;
use serde::Deserialize;
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

/// A comparison of ranks with one device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
enum What {
    /// Logits, every activation and every state by bits, or the logits within bounds.
    Forward,
    /// Truncate, checkpoint, restore and fork under the placement.
    State,
    /// Which ids move.
    Identity,
}

impl What {
    const ALL: [What; 3] = [What::Forward, What::State, What::Identity];

    fn name(self) -> &'static str {
        match self {
            What::Forward => "forward",
            What::State => "state",
            What::Identity => "identity",
        }
    }
}

/// A model on one device and on ranks.
#[derive(Debug, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::harness::kinds) struct PlacementEquivalence {
    model: ModelSource,
    /// Ranks that are compared with one device.
    placements: NonEmpty<Ranks>,
    /// What is compared; everything where it is left out.
    #[serde(default)]
    checks: Option<NonEmpty<What>>,
    /// Tokens of the prompt.
    prompt_tokens: usize,
    /// How logits must agree in `forward`, the only check that reads it: `bitwise` (activations and states
    /// too), or bounds for placements whose cuts are no subtrees of the reduction tree. The plan must say
    /// the same.
    #[serde(default)]
    expect: Option<Expectations<Check>>,
}

impl KindSpec for PlacementEquivalence {
    const NAME: &'static str = "placement_equivalence";
    const DEVICE: DeviceUse = DeviceUse::Any;
    const POLICY: PolicyUse = PolicyUse::Listed;
}

impl GateKind for PlacementEquivalence {
    fn cases(&self, scope: &PlanScope) -> Result<Vec<Case>, Fault> {
        if self.prompt_tokens < 3 {
            return Err(Fault::at("prompt_tokens", "expected at least 3"));
        }
        let mut seen = BTreeSet::new();
        for ranks in self.placements.iter() {
            let name = ranks.axis_text();
            if name == "single" || !seen.insert(name.clone()) {
                return Err(Fault::at(
                    "placements",
                    format!("`{name}` stands twice or divides nothing"),
                ));
            }
        }
        self.can_be_placed(&scope.base)?;
        let checks = self.checks.as_ref().map_or(&What::ALL[..], |listed| listed);
        match (checks.contains(&What::Forward), &self.expect) {
            (true, None) => Err("`forward` needs `expect`: how logits must agree"),
            (false, Some(_)) => Err("nothing reads `expect`: `forward` is not among the checks"),
            _ => Ok(()),
        }
        .map_err(|message| Fault::at("expect", message))?;
        let names = checks.iter().map(|check| check.name());
        Ok(Matrix::new().axis("placement", &self.placements).cases(names))
    }

    fn run(&self, cell: &Cell, context: &RunContext) -> Outcome {
        self.decide(cell, context).unwrap_or_else(Outcome::error)
    }

    fn group(&self, cell: &Cell) -> Option<String> {
        Some(format!("{} {:?}", self.model.name(), cell.policy))
    }

    fn expectations(&self) -> Vec<&Select> {
        self.expect.iter().flat_map(|rows| rows.iter()).map(|row| &row.when).collect()
    }
}

impl PlacementEquivalence {
    /// Refuses ranks that no model, or not this one, can be divided among.
    fn can_be_placed(&self, base: &Path) -> Result<(), Fault> {
        let descriptor = self.model.descriptor(base);
        for ranks in self.placements.iter() {
            let request = ranks.request();
            let refused = match &descriptor {
                Some(d) => Placement::plan(d, &request).err(),
                None => request.group_ranks().err(),
            };
            if let Some(why) = refused {
                return Err(Fault::at("placements", format!("`{}`: {why}", ranks.axis_text())));
            }
        }
        Ok(())
    }

    fn decide(&self, cell: &Cell, context: &RunContext) -> Result<Outcome, String> {
        let name = cell.axis("placement").unwrap_or_default();
        let ranks = self.placements.iter().find(|r| r.axis_text() == name);
        let ranks = ranks.ok_or_else(|| format!("no placement `{name}`"))?;
        let weighted = self.model.weighted(context)?;
        let placed = weighted.engine(Some(ranks), cell, context)?;
        let what = What::ALL.into_iter().find(|what| cell.case.as_deref() == Some(what.name()));
        let what = what.ok_or("the cell names no check")?;
        match what {
            What::Forward => {
                let check = find(self.expect.as_deref().unwrap_or_default(), cell)?;
                let subtrees = identity::off_the_tree(&placed).is_empty();
                if subtrees != (*check == Check::Bitwise) {
                    let says = if subtrees { "is a subtree" } else { "is no subtree" };
                    return Ok(Outcome::fail(format!(
                        "the plan says that a cut {says}, `expect` says {}",
                        if subtrees { "bounds" } else { "bitwise" }
                    )));
                }
                let one =
                    || Trace::execute(&weighted.engine(None, cell, context)?, self.prompt_tokens);
                let (model, tokens) = (self.model.name(), self.prompt_tokens);
                let key = format!("one device {model} {:?} {tokens}", cell.policy);
                let one: Arc<Trace> = context.cache.get_or_make(&key, one)?;
                Ok(compare(&one, &Trace::execute(&placed, self.prompt_tokens)?, check))
            }
            What::State => {
                let stage = Stage { engine: &placed };
                let mut compared = 0;
                for (name, check) in CHECKS {
                    match check(&stage) {
                        Ok(n) => compared += n,
                        Err(why) => return Ok(Outcome::fail(format!("{name}: {why}"))),
                    }
                }
                Ok(Outcome::pass(format!("{compared} comparisons bitwise equal"))
                    .with("comparisons", compared))
            }
            What::Identity => {
                Ok(identity::outcome(&weighted, &weighted.engine(None, cell, context)?, &placed))
            }
        }
    }
}
