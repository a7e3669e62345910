//! `region_reference`: what a region computes, beside the CPU in FP32.

use super::axes::Axes;
use super::execute::{Execution, execute};
use super::schedule::{self, Move};
use super::subject::Subject;
use crate::backend::{DeviceKind, Policy, Region};
use crate::harness::inventory::ExecutionCase;
use crate::harness::kind::{
    Case, Cell, DeviceUse, Fault, GateKind, KindSpec, Outcome, PlanScope, PolicyUse, RunContext,
};
use crate::harness::kinds::core_reference::{Bound, decide};
use crate::harness::spec::{Expectations, NonEmpty, Select, find};
use serde::Deserialize;
use std::sync::Arc;

/// Every row that a region gives, and the state it leaves, against the CPU's under `f32`: the same rows
/// in one step, the same inputs and weights, which are exact in BF16.
#[derive(Debug, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::harness::kinds) struct RegionReference {
    region: Region,
    /// How the rows are cut into steps.
    cases: NonEmpty<ExecutionCase>,
    /// Shapes; which axes there must be depends on the region.
    matrix: Axes,
    /// Bounds, per selected cells.
    expect: Expectations<Bound>,
}

impl KindSpec for RegionReference {
    const NAME: &'static str = "region_reference";
    const DEVICE: DeviceUse = DeviceUse::Any;
    const POLICY: PolicyUse = PolicyUse::Listed;
}

impl GateKind for RegionReference {
    fn cases(&self, _scope: &PlanScope) -> Result<Vec<Case>, Fault> {
        // Rounding another way may choose another id, and neither is wrong.
        if matches!(self.region, Region::Sampler | Region::MoeRouter) {
            let why = "chooses ids, which have no distance; see `sampling_*` and `routing`";
            return Err(Fault::at("region", format!("`{}` {why}", self.region)));
        }
        Bound::check(&self.expect)?;
        let matrix = self.matrix.matrix(self.region).map_err(|why| Fault::at("matrix", why))?;
        Ok(matrix.cases(self.cases.iter().map(|c| c.name())))
    }

    fn run(&self, cell: &Cell, context: &RunContext) -> Outcome {
        self.trial(cell, context).unwrap_or_else(Outcome::error)
    }

    fn group(&self, _cell: &Cell) -> Option<String> {
        Some(format!("region:{}", self.region))
    }

    fn expectations(&self) -> Vec<&Select> {
        self.expect.iter().map(|row| &row.when).collect()
    }
}

impl RegionReference {
    fn trial(&self, cell: &Cell, context: &RunContext) -> Result<Outcome, String> {
        let case = cell.case.as_deref().and_then(ExecutionCase::parse).ok_or("unknown case")?;
        let bound = find(&self.expect, cell)?;
        let subject = Subject::new(self.region, cell, context.threads)?;
        let round = subject.round;
        let found = each_output(subject, |subject| schedule::of(case, subject))?;
        let shape: Vec<String> = cell.axes.iter().map(|(k, v)| format!("{k}={v}")).collect();
        let key = format!("f32 {} {round} {}", self.region, shape.join(","));
        let expected: Arc<Vec<Execution>> = context.cache.get_or_make(&key, || {
            let cell = Cell { device: DeviceKind::Cpu, policy: Some(Policy::F32), ..cell.clone() };
            // The inputs of the other side: rounded to BF16 where its policy rounds.
            let subject = Subject { round, ..Subject::new(self.region, &cell, context.threads)? };
            each_output(subject, |subject| vec![Move::Feed(subject.rows)])
        })?;
        Ok(decide(&compared(&expected, &found)?, bound))
    }
}

/// Executes a subject once for every output, so that each is compared by its own largest value.
fn each_output(
    mut subject: Subject,
    moves: impl Fn(&Subject) -> Vec<Move>,
) -> Result<Vec<Execution>, String> {
    let outputs = match subject.outputs.is_empty() {
        true => vec![Vec::new()],
        false => subject.outputs.iter().map(|output| vec![*output]).collect(),
    };
    let mut executions = Vec::new();
    for one in outputs {
        subject.outputs = one;
        executions.push(execute(&subject, moves(&subject))?);
    }
    Ok(executions)
}

/// Name, expected and found values.
type Compared = (String, Vec<f64>, Vec<f32>);

/// Every output and every part of the state.
pub(super) fn compared(
    expected: &[Execution],
    found: &[Execution],
) -> Result<Vec<Compared>, String> {
    let mut all = Vec::new();
    for (i, (expected, found)) in expected.iter().zip(found).enumerate() {
        if !expected.outputs.is_empty() {
            let wide = expected.outputs.iter().map(|x| f64::from(*x)).collect();
            all.push((format!("output {i}"), wide, found.outputs.clone()));
        }
    }
    let last = |side: &[Execution]| side.last().map(|e| e.state.clone()).unwrap_or_default();
    let (expected, found) = (last(expected), last(found));
    if expected.len() != found.len() {
        return Err(format!("{} parts of the state, {} expected", found.len(), expected.len()));
    }
    for (expected, found) in expected.into_iter().zip(found) {
        if expected.name != found.name {
            return Err(format!("state `{}` where `{}` is expected", found.name, expected.name));
        }
        // An open group without rows has none.
        if !expected.values.is_empty() || !found.values.is_empty() {
            let narrow = found.values.iter().map(|x| *x as f32).collect();
            all.push((expected.name, expected.values, narrow));
        }
    }
    match all.is_empty() {
        true => Err("nothing was compared".to_owned()),
        false => Ok(all),
    }
}
