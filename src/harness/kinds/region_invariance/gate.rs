//! The gate: cases, verdicts by the inventory.

use super::axes::Axes;
use super::execute::{Execution, execute};
use super::schedule;
use super::subject::Subject;
use crate::backend::Region;
use crate::harness::inventory::{ExecutionCase, Inventory, RegionVerdict};
use crate::harness::kind::{
    Case, Cell, DeviceUse, Fault, GateKind, KindSpec, Outcome, PlanScope, PolicyUse, RunContext,
};
use crate::harness::spec::NonEmpty;
use crate::tensor::Difference;
use serde::Deserialize;
use std::sync::Arc;

/// Every row of a region, and the state it leaves, against token-by-token execution.
#[derive(Debug, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::harness::kinds) struct RegionInvariance {
    region: Region,
    /// Executions to compare with the canonical one, `recurrent_prefill`.
    cases: NonEmpty<ExecutionCase>,
    /// Shapes; which axes there must be depends on the region.
    matrix: Axes,
    /// Where verdicts and bounds come from.
    #[expect(dead_code, reason = "its one value says that the file cannot weaken itself")]
    expect: ExpectInventory,
}

/// The region inventory owns verdicts and bounds.
#[derive(Debug, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
enum ExpectInventory {
    Inventory,
}

impl KindSpec for RegionInvariance {
    const NAME: &'static str = "region_invariance";
    const DEVICE: DeviceUse = DeviceUse::Any;
    const POLICY: PolicyUse = PolicyUse::Listed;
}

impl GateKind for RegionInvariance {
    fn cases(&self, _scope: &PlanScope) -> Result<Vec<Case>, Fault> {
        if self.cases.contains(&ExecutionCase::CANONICAL) {
            let why = "`recurrent_prefill` is what the other cases are compared with";
            return Err(Fault::at("cases", why));
        }
        let matrix = self.matrix.matrix(self.region).map_err(|why| Fault::at("matrix", why))?;
        Ok(matrix.cases(self.cases.iter().map(|c| c.name())))
    }

    fn run(&self, cell: &Cell, context: &RunContext) -> Outcome {
        self.decide(cell, context).unwrap_or_else(Outcome::error)
    }

    fn group(&self, _cell: &Cell) -> Option<String> {
        Some(format!("region:{}", self.region))
    }
}

impl RegionInvariance {
    fn decide(&self, cell: &Cell, context: &RunContext) -> Result<Outcome, String> {
        let policy = cell.policy.ok_or("the cell has no policy")?;
        let case = cell.case.as_deref().and_then(ExecutionCase::parse).ok_or("unknown case")?;
        let inventory = context.cache.get_or_make("inventory", || {
            Inventory::read(&context.root).map_err(|e| e.to_string())
        })?;
        let verdict = inventory.verdict(self.region, case, policy, cell.device)?;
        let shape: Vec<String> = cell.axes.iter().map(|(k, v)| format!("{k}={v}")).collect();
        let subject = Subject::new(self.region, cell, context.threads)?;
        let key = format!("{}/{}/{policy}/{}", self.region, cell.device, shape.join(","));
        let canonical: Arc<Execution> = context.cache.get_or_make(&key, || {
            execute(&subject, schedule::of(ExecutionCase::CANONICAL, &subject))
        })?;
        let found = execute(&subject, schedule::of(case, &subject))?;
        compare(verdict, &canonical, &found)
    }
}

/// Decides by the inventory's verdict.
pub(super) fn compare(
    verdict: &RegionVerdict,
    expected: &Execution,
    found: &Execution,
) -> Result<Outcome, String> {
    let rows = Difference::between(&expected.outputs, &found.outputs).map_err(|e| e.to_string())?;
    let state_differs = expected.first_state_difference(found);
    let nothing = expected.outputs.is_empty() && expected.state.is_empty();
    let finite = (rows.count == 0 || rows.is_finite()) && expected.state_is_finite() && !nothing;
    let bitwise = finite && (rows.count == 0 || rows.is_bitwise()) && state_differs.is_none();
    let numbers = |outcome: Outcome| {
        outcome
            .with("outputs", rows.count as u64)
            .with("state_values", expected.state_len() as u64)
            .with("unequal_bits", rows.unequal_bits as u64)
            .number("max_abs", rows.max_abs)
            .number("rms", rows.rms)
            .with("max_ulp", rows.max_ulp)
    };
    if !finite {
        return Ok(numbers(Outcome::fail("a value is not finite, or nothing was compared")));
    }
    Ok(numbers(match verdict {
        RegionVerdict::Exact if bitwise => Outcome::pass("bitwise equal, outputs and state"),
        RegionVerdict::Exact => Outcome::fail(match state_differs {
            Some(name) if rows.unequal_bits == 0 => {
                format!("expected the same bits, state `{name}` differs")
            }
            _ => format!(
                "expected the same bits, {} of {} outputs differ, by up to {:.3e} at index {}",
                rows.unequal_bits, rows.count, rows.max_abs, rows.worst_at
            ),
        }),
        RegionVerdict::Exception { bounds, .. } => match bounds.violations(&rows)[..] {
            [] if bitwise => Outcome::pass("within bounds; measured zero: ready for review"),
            [] => Outcome::pass("within the bounds of the exception"),
            ref why => Outcome::fail(why.join("; ")),
        },
        RegionVerdict::Unverified => {
            Outcome::new(crate::harness::Verdict::Measured, "compared, nothing claimed")
        }
        RegionVerdict::NotApplicable { why } => {
            Outcome::fail(format!("the inventory says that this cannot run ({why}), and it ran"))
        }
    }))
}
