//! `device_facts`: what a device does, on which numerical policies rest.

use crate::backend::DeviceKind;
use crate::backend::cuda::probe::{Fact, FactName, RowsQuestion};
use crate::backend::cuda::{CudaError, Device, DeviceFacts, KernelArch};
use crate::harness::kind::{
    Case, Cell, DeviceUse, Fault, GateKind, KindSpec, Outcome, PlanScope, PolicyUse, RunContext,
    Verdict,
};
use serde::Deserialize;
use std::sync::Arc;

/// Facts about the matrix units and memory of a CUDA device.
#[derive(Debug, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct DeviceFactsGate {
    /// Results compared per instruction and kind of data.
    samples: usize,
    seed: u64,
    /// Facts that must hold.
    holds: Vec<FactName>,
    /// Facts that are asked and reported, whatever the answer.
    measured: Vec<FactName>,
    /// Weight shapes [m, k] of whole products whose rows must have the same bits.
    product_shapes: Vec<[usize; 2]>,
    /// Tokens of the product that the others are compared with.
    product_tokens: usize,
    /// Numbers of tokens that are compared with it.
    tokens: Vec<usize>,
}

impl KindSpec for DeviceFactsGate {
    const NAME: &'static str = "device_facts";
    const DEVICE: DeviceUse = DeviceUse::Any;
    const POLICY: PolicyUse = PolicyUse::None;
}

const PRODUCT_ROWS: &str = "product_rows";

impl GateKind for DeviceFactsGate {
    fn cases(&self, scope: &PlanScope) -> Result<Vec<Case>, Fault> {
        self.check()?;
        if scope.device != DeviceKind::Cuda {
            return Err(Fault::from(
                "device facts are asked of CUDA devices: expected `requires: { device: cuda }`"
                    .to_owned(),
            ));
        }
        let named = self.holds.iter().chain(&self.measured).map(|f| Case::named(f.name()));
        let products = self.product_shapes.iter().map(|[m, k]| Case {
            case: Some(PRODUCT_ROWS.to_owned()),
            axes: vec![("shape".to_owned(), format!("{m}x{k}"))],
        });
        Ok(named.chain(products).collect())
    }

    fn run(&self, cell: &Cell, context: &RunContext) -> Outcome {
        match self.ask(cell, context) {
            Ok(outcome) => outcome,
            Err(message) => Outcome::error(message),
        }
    }

    /// One process: the context and the compiled kernels are shared.
    fn group(&self, _cell: &Cell) -> Option<String> {
        Some("cuda".to_owned())
    }
}

impl DeviceFactsGate {
    /// Every fact is either expected or measured, and every product can be computed.
    fn check(&self) -> Result<(), Fault> {
        for fact in FactName::ALL {
            let times = self.holds.iter().chain(&self.measured).filter(|f| **f == fact).count();
            if times != 1 {
                let name = fact.name();
                let message =
                    format!("expected `{name}` once in `holds` or `measured`, found {times} times");
                return Err(Fault::at("holds", message));
            }
        }
        if self.samples < 256 {
            let message = format!("expected at least 256, found {}", self.samples);
            return Err(Fault::at("samples", message));
        }
        if let Some(n) = self.tokens.iter().find(|n| **n == 0 || **n > self.product_tokens) {
            let message = format!("expected 1 to {} tokens, found {n}", self.product_tokens);
            return Err(Fault::at("tokens", message));
        }
        Ok(())
    }

    fn ask(&self, cell: &Cell, context: &RunContext) -> Result<Outcome, String> {
        let device: Arc<Device> = open(context)?;
        let name = cell.case.as_deref().unwrap_or_default();
        if name == PRODUCT_ROWS {
            let shape = cell.read_list::<usize>("shape")?;
            let [m, k] = shape[..] else { return Err("a shape is two numbers".to_owned()) };
            let question = RowsQuestion {
                device: &device,
                m,
                k,
                all_tokens: self.product_tokens,
                tokens: &self.tokens,
                seed: self.seed,
            };
            let fact = question.ask().map_err(|e| e.to_string())?;
            return Ok(outcome(&fact, true, device.facts()));
        }
        let all = self.holds.iter().chain(&self.measured);
        let fact = all.copied().find(|f| f.name() == name).ok_or("the cell names no fact")?;
        if fact.needs_wgmma() && device.arch() != KernelArch::SM_90A {
            let message = format!("asks about wgmma, which {} does not have", device.arch());
            return Ok(Outcome::new(Verdict::Skip, message));
        }
        let answer = fact.ask(&device, self.samples, self.seed).map_err(|e| e.to_string())?;
        Ok(outcome(&answer, self.holds.contains(&fact), device.facts()))
    }
}

fn open(context: &RunContext) -> Result<Arc<Device>, String> {
    context
        .cache
        .get_or_make("cuda device 0", || Device::open(0))
        .map_err(|e: CudaError| e.to_string())
}

fn outcome(fact: &Fact, expected: bool, device: &DeviceFacts) -> Outcome {
    let counts = format!("{} of {} results differ", fact.different, fact.compared);
    let mut outcome = match (expected, fact.holds) {
        (true, true) => Outcome::pass(format!("holds: {counts}")),
        (true, false) => Outcome::fail(format!("expected the fact to hold, found: {counts}")),
        (false, holds) => {
            let answer = if holds { "holds" } else { "does not hold" };
            Outcome::new(Verdict::Measured, format!("{answer}: {counts}"))
        }
    };
    outcome = outcome
        .with("device", device.name.as_str())
        .with("arch", device.arch.as_str())
        .with("compared", fact.compared)
        .with("different", fact.different);
    for (key, value) in &fact.evidence {
        outcome = outcome.with(key, value.clone());
    }
    outcome
}
