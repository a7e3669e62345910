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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::testing::gate;

    const FILE: &str = include_str!("../../../gates/tensor-core-bits.yaml");

    fn scope(device: DeviceKind) -> PlanScope {
        let here = std::path::PathBuf::new();
        PlanScope { device, policy: None, long: false, root: here.clone(), base: here }
    }

    #[test]
    fn the_shipped_gate_asks_every_fact_once() {
        let gate = gate(FILE).unwrap();
        let cases = gate.kind.cases(&scope(DeviceKind::Cuda)).unwrap();
        assert!(cases.len() > FactName::ALL.len(), "products too");
        assert!(gate.kind.cases(&scope(DeviceKind::Cpu)).is_err());
    }

    #[test]
    fn a_fact_left_out_or_asked_twice_is_a_fault() {
        let planted = |with: &str| {
            let gate = gate(&FILE.replacen("  - position\n", with, 1)).unwrap();
            gate.kind.cases(&scope(DeviceKind::Cuda)).unwrap_err().message
        };
        assert!(planted("").contains("`position` once in `holds` or `measured`, found 0 times"));
        assert!(planted("  - position\n  - position\n").contains("found 2 times"));
    }

    #[test]
    fn a_difference_fails_where_the_fact_is_expected_and_only_there() {
        let device = crate::backend::cuda::DeviceFacts {
            ordinal: 0,
            name: "a GPU".into(),
            arch: "sm_90a".into(),
            multiprocessors: 1,
            memory_bytes: 0,
            l2_bytes: 0,
            block_shared_bytes: 0,
            driver_cuda: "13.0".into(),
        };
        let fact = |holds: bool| Fact {
            compared: 8,
            different: u64::from(!holds),
            holds,
            ..Fact::default()
        };
        assert_eq!(outcome(&fact(true), true, &device).verdict, Verdict::Pass);
        assert_eq!(outcome(&fact(false), true, &device).verdict, Verdict::Fail);
        assert_eq!(outcome(&fact(false), false, &device).verdict, Verdict::Measured);
        assert_eq!(outcome(&fact(true), false, &device).verdict, Verdict::Measured);
    }
}
