//! Runs a gate written in a test, in this process: how each kind shows that it can fail.

use super::kind::{Case, Cell, Outcome, PlanScope, PolicyUse, RunContext};
use super::spec::{Diagnostic, GateFile};
use super::{Cache, Verdict};
use crate::backend::{DeviceKind, Policy};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The project folder.
pub(crate) fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// A gate from text; paths in it are relative to `gates/`.
pub(crate) fn gate(yaml: &str) -> Result<GateFile, Diagnostic> {
    GateFile::parse(&root().join("gates/test.yaml"), yaml, &Default::default())
}

/// The outcome of every cell on the CPU.
///
/// # Panics
/// The text is no valid gate.
pub(crate) fn outcomes(yaml: &str) -> Vec<(Cell, Outcome)> {
    let gate = gate(yaml).unwrap_or_else(|e| panic!("{e}"));
    let device = DeviceKind::Cpu;
    let policies: Vec<Option<Policy>> = match (gate.policy_use, &gate.policies) {
        (PolicyUse::None, _) => vec![None],
        (_, Some(listed)) => listed.iter().map(|p| p.resolve(device).ok()).collect(),
        (_, None) => Policy::available(device).iter().map(|p| Some(*p)).collect(),
    };
    // Of this call alone: tests run at the same time.
    let scratch = tempfile::tempdir().expect("a temporary folder");
    let base = gate.path.parent().unwrap_or(Path::new("")).to_owned();
    let context = RunContext {
        long: false,
        root: root(),
        base: base.clone(),
        scratch: scratch.path().to_owned(),
        threads: 2,
        cache: Arc::new(Cache::default()),
    };
    let mut all = Vec::new();
    for policy in policies {
        let scope = PlanScope { device, policy, long: false, root: root(), base: base.clone() };
        let cases = gate.kind.cases(&scope).unwrap_or_else(|e| panic!("{}", gate.locate(&e)));
        for Case { case, axes } in cases {
            let cell = Cell { device, policy, case, axes };
            // As in a run: an empty folder for every trial.
            let own = scratch.path().join(all.len().to_string());
            std::fs::create_dir(&own).expect("a temporary folder");
            let outcome = gate.kind.run(&cell, &RunContext { scratch: own, ..context.clone() });
            all.push((cell, outcome));
        }
    }
    all
}

/// The messages of cells that did not pass, each behind its case.
pub(crate) fn problems(yaml: &str) -> Vec<String> {
    outcomes(yaml)
        .into_iter()
        .filter(|(_, outcome)| outcome.verdict != Verdict::Pass)
        .map(|(cell, outcome)| format!("{}: {}", cell.case.unwrap_or_default(), outcome.message))
        .collect()
}
