//! `descriptor_echo`: the engine holds exactly the descriptor that it was given, and a change of any
//! key is seen.

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
pub(super) struct DescriptorEcho {
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
        let unseen = unseen_changes(&model)?;
        Ok(match unseen.as_slice() {
            [] => Outcome::pass("echoed, and every change is seen")
                .with("changes", changes(&model.descriptor).len()),
            [first, ..] => Outcome::fail(format!("a change of `{first}` is not seen")),
        })
    }
}

fn engine(model: &Model, descriptor: Descriptor) -> Result<Engine, String> {
    let model = Model { descriptor, checkpoint: model.checkpoint.clone() };
    let weights = model.load(&LoadOptions::default()).map_err(|e| e.to_string())?;
    Engine::new(Arc::new(model.descriptor), &weights, &EngineOptions::default())
        .map_err(|e| e.to_string())
}

/// Descriptors that differ in one key and still fit the weights.
fn changes(of: &Descriptor) -> Vec<(&'static str, Descriptor)> {
    let mut all = Vec::new();
    let mut add = |key: &'static str, change: &dyn Fn(&mut Descriptor)| {
        let mut changed = of.clone();
        change(&mut changed);
        all.push((key, changed));
    };
    add("family", &|d| d.family.push('x'));
    add("max_position_tokens", &|d| d.max_position_tokens -= 1);
    add("norm_epsilon", &|d| d.norm_epsilon *= 2.0);
    add("end_tokens", &|d| {
        d.end_tokens.pop();
    });
    if of.attention.is_some() {
        add("rope_theta", &|d| {
            if let Some(a) = &mut d.attention {
                a.rope.theta += 1.0;
            }
        });
    }
    all
}

/// Keys whose change the engine's echo does not show, or shows under another name.
fn unseen_changes(model: &Model) -> Result<Vec<&'static str>, String> {
    let mut unseen = Vec::new();
    for (key, changed) in changes(&model.descriptor) {
        let engine = engine(model, changed)?;
        let differences = model.descriptor.differences(engine.descriptor());
        if !matches!(differences.as_slice(), [only] if only.key.starts_with(key)) {
            unseen.push(key);
        }
    }
    Ok(unseen)
}

#[cfg(test)]
mod tests {
    use crate::harness::testing::problems;

    const FILE: &str = include_str!("../../../gates/descriptor-echo.yaml");

    #[test]
    fn the_shipped_gate_holds() {
        assert_eq!(problems(FILE), [""; 0]);
    }

    #[test]
    fn another_descriptor_is_named_by_its_key() {
        let found = problems(&FILE.replace("tiny-llama.json", "tiny-qwen3.json"));
        let named = "llama: the engine's descriptor differs: `";
        assert!(found.iter().any(|m| m.starts_with(named)), "{found:?}");
    }
}
