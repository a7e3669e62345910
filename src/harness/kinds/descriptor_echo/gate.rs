//! The gate: one trial per model.

use super::change::{Seen, changes};
use crate::backend::Policy;
use crate::descriptor::Descriptor;
use crate::engine::{Engine, EngineOptions};
use crate::harness::kind::{
    Case, Cell, DeviceUse, Fault, GateKind, KindSpec, Outcome, PlanScope, PolicyUse, RunContext,
};
use crate::weights::{LoadOptions, Model};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

/// Models whose engine must echo a committed descriptor, as `--check-descriptor` prints it.
#[derive(Debug, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::harness::kinds) struct DescriptorEcho {
    /// The models, by name.
    models: BTreeMap<String, Echo>,
}

/// A checkpoint and what its engine must hold.
#[derive(Debug, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
struct Echo {
    /// Folder of the checkpoint.
    model: PathBuf,
    /// The committed descriptor.
    descriptor: PathBuf,
}

impl KindSpec for DescriptorEcho {
    const NAME: &'static str = "descriptor_echo";
    const DEVICE: DeviceUse = DeviceUse::Host;
    const POLICY: PolicyUse = PolicyUse::None;
}

impl GateKind for DescriptorEcho {
    fn cases(&self, _scope: &PlanScope) -> Result<Vec<Case>, Fault> {
        if self.models.is_empty() {
            return Err(Fault::at("models", "expected at least one model"));
        }
        Ok(self.models.keys().map(Case::named).collect())
    }

    fn run(&self, cell: &Cell, context: &RunContext) -> Outcome {
        match self.models.get(cell.case.as_deref().unwrap_or_default()) {
            Some(echo) => echo.decide(context).unwrap_or_else(Outcome::error),
            None => Outcome::error("no such model"),
        }
    }
}

impl Echo {
    fn decide(&self, context: &RunContext) -> Result<Outcome, String> {
        let path = context.path(&self.descriptor);
        let committed =
            std::fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?;
        let given = Descriptor::from_json(&path.display().to_string(), committed.as_bytes())
            .map_err(|e| e.to_string())?;
        let model = Model::open(context.path(&self.model)).map_err(|e| e.to_string())?;
        // Derived from config.json, and given in its place.
        for origin in [model.descriptor.clone(), given] {
            let engine = engine(&model, origin)?;
            let held = engine.descriptor();
            if held.to_json() != committed {
                let derived = Descriptor::from_json("committed", committed.as_bytes());
                let first = derived.ok().and_then(|d| d.differences(held).into_iter().next());
                let first = first.map_or_else(|| "another text".to_owned(), |d| d.to_string());
                return Ok(Outcome::fail(format!("the engine's descriptor differs: {first}")));
            }
        }
        let mut held = 0;
        let all = changes(&committed)?;
        for change in &all {
            match change.seen(&model) {
                Ok(Seen::Held) => held += 1,
                Ok(Seen::Refused) => {}
                Err(message) => return Ok(Outcome::fail(message)),
            }
        }
        Ok(Outcome::pass(format!("echoed, and each of {} changes is held or refused", all.len()))
            .with("changes_held", held)
            .with("changes_refused", all.len() - held))
    }
}

pub(super) fn engine(model: &Model, descriptor: Descriptor) -> Result<Engine, String> {
    let model = Model { descriptor, checkpoint: model.checkpoint.clone() };
    let weights = model.load(&LoadOptions::default()).map_err(|e| e.to_string())?;
    // One thread and the plainest kernels: nothing is computed.
    let options = EngineOptions { threads: Some(1), ..EngineOptions::with_policy(Policy::F32) };
    Engine::new(Arc::new(model.descriptor), &weights, &options).map_err(|e| e.to_string())
}
