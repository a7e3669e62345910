//! `runner_probe`: trials that pass, fail, panic, die, hang or wait, as the file says. For trying
//! out a runner, its records and the CI around it; it says nothing about the engine.

use crate::harness::kind::{
    Case, Cell, DeviceUse, Fault, GateKind, KindSpec, Outcome, PlanScope, PolicyUse, RunContext,
    Verdict,
};
use crate::harness::plan::{AxisValue, Matrix};
use crate::harness::spec::NonEmpty;
use serde::Deserialize;
use std::time::Duration;

/// Trials whose behaviour is known beforehand.
#[derive(Debug, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct RunnerProbe {
    /// What the trials do, one case each.
    behaviour: NonEmpty<Behaviour>,
    /// Trials of each behaviour (axis `n`).
    #[serde(default = "one")]
    repeat: u64,
    /// How long every trial waits first, in milliseconds.
    #[serde(default)]
    wait_ms: u64,
    /// Whether the trials share a worker.
    #[serde(default)]
    grouped: bool,
}

fn one() -> u64 {
    1
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Behaviour {
    Pass,
    Fail,
    Measure,
    Panic,
    /// The worker process aborts.
    Abort,
    /// The trial never ends.
    Hang,
    /// Passes the first time a worker runs one, fails after: shows which trials share a worker.
    First,
}

impl AxisValue for Behaviour {
    fn axis_text(&self) -> String {
        format!("{self:?}").to_lowercase()
    }
}

impl KindSpec for RunnerProbe {
    const NAME: &'static str = "runner_probe";
    const DEVICE: DeviceUse = DeviceUse::Host;
    const POLICY: PolicyUse = PolicyUse::None;
}

impl GateKind for RunnerProbe {
    fn cases(&self, _scope: &PlanScope) -> Result<Vec<Case>, Fault> {
        let numbers: Vec<u64> = (0..self.repeat).collect();
        Ok(Matrix::new().axis("n", &numbers).cases(self.behaviour.iter().copied()))
    }

    fn run(&self, cell: &Cell, context: &RunContext) -> Outcome {
        std::thread::sleep(Duration::from_millis(self.wait_ms));
        match cell.case.as_deref() {
            Some("fail") => Outcome::fail("expected nothing, found this probe"),
            Some("measure") => Outcome::new(Verdict::Measured, "a number").number("value", 1.5),
            Some("panic") => panic!("a probe panics"),
            Some("abort") => std::process::abort(),
            Some("hang") => loop {
                std::thread::park();
            },
            Some("first") => {
                let mut made = false;
                let make = || {
                    made = true;
                    Ok::<_, ()>(())
                };
                // The cache of a worker lives as long as the worker.
                let _ = context.cache.get_or_make("runner_probe", make);
                if made { Outcome::pass("first here") } else { Outcome::fail("not the first here") }
            }
            _ => Outcome::pass("as asked"),
        }
    }

    fn group(&self, _cell: &Cell) -> Option<String> {
        self.grouped.then(|| "runner_probe".to_owned())
    }
}
