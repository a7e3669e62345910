//! The kind: its keys, its cells, and how one is decided.

use super::base::Base;
use super::change::Change;
use crate::engine::manifest::{BlockName, FieldDifference, Manifest, compare};
use crate::harness::kind::{
    Case, Cell, DeviceUse, Fault, GateKind, KindSpec, Outcome, PlanScope, PolicyUse, RunContext,
};
use crate::harness::{Matrix, NonEmpty};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Which change moves which ids.
#[derive(Debug, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::harness::kinds) struct ManifestIdentity {
    /// Model folders.
    models: NonEmpty<PathBuf>,
    /// Every change this engine can make, and the blocks whose ids it moves; no other id may move.
    changes: BTreeMap<Change, Vec<BlockName>>,
}

/// The case that derives the ids of an unchanged manifest a second time.
const REDERIVED: &str = "ids_rederived";

impl KindSpec for ManifestIdentity {
    const NAME: &'static str = "manifest_identity";
    const DEVICE: DeviceUse = DeviceUse::Host;
    const POLICY: PolicyUse = PolicyUse::None;
}

impl GateKind for ManifestIdentity {
    fn cases(&self, _scope: &PlanScope) -> Result<Vec<Case>, Fault> {
        if let Some(missing) = Change::ALL.iter().find(|c| !self.changes.contains_key(c)) {
            let message = format!("`{}` is missing: say which ids it moves", missing.name());
            return Err(Fault::at("changes", message));
        }
        let names: Vec<String> = self.models.iter().map(|m| model_name(m)).collect();
        let cases = [REDERIVED].into_iter().chain(Change::ALL.iter().map(|c| c.name()));
        Ok(Matrix::new().axis("model", &names).cases(cases))
    }

    fn run(&self, cell: &Cell, context: &RunContext) -> Outcome {
        self.decide(cell, context).unwrap_or_else(Outcome::error)
    }

    fn group(&self, cell: &Cell) -> Option<String> {
        cell.axis("model")
    }
}

impl ManifestIdentity {
    fn decide(&self, cell: &Cell, context: &RunContext) -> Result<Outcome, String> {
        let name = cell.axis("model").unwrap_or_default();
        let path = self.models.iter().find(|m| model_name(m) == name).ok_or("no such model")?;
        let path = context.path(path);
        let key = format!("manifest base {}", path.display());
        let base = context.cache.get_or_make(&key, || Base::open(&path))?;
        let case = cell.case.as_deref().unwrap_or_default();
        if case == REDERIVED {
            return Ok(super::rederive::outcome(
                &base.execution().manifest(),
                &base.model.descriptor,
            ));
        }
        let change = Change::ALL.iter().find(|c| c.name() == case).ok_or("no such change")?;
        let expected = self.changes.get(change).ok_or("no such change")?;
        let (before, after) = change.manifests(&base, &context.scratch)?;
        let moved: Vec<BlockName> =
            BlockName::ALL.into_iter().filter(|b| before.id(*b) != after.id(*b)).collect();
        let mut expected = expected.clone();
        expected.sort();
        let outcome = if moved == expected {
            match compared(&before, &after, &moved) {
                Ok(()) => Outcome::pass(format!("moves {}", listed(&moved))),
                Err(message) => Outcome::fail(message),
            }
        } else {
            Outcome::fail(format!(
                "expected to move {}, moved {}",
                listed(&expected),
                listed(&moved)
            ))
        };
        Ok(moved.into_iter().fold(outcome, |outcome, block| {
            let ids = format!("{} -> {}", before.id(block).short(), after.id(block).short());
            outcome.with(block.as_str(), ids)
        }))
    }
}

/// Whether a comparison shows the blocks that moved, and says the same from either side.
fn compared(before: &Manifest, after: &Manifest, moved: &[BlockName]) -> Result<(), String> {
    let (there, back) = (compare(before, after), compare(after, before));
    for (there, back) in there.blocks.iter().zip(&back.blocks) {
        let name = there.name.as_str();
        let turned: Vec<_> = back
            .fields
            .iter()
            .map(|d| FieldDifference {
                path: d.path.clone(),
                left: d.right.clone(),
                right: d.left.clone(),
            })
            .collect();
        if there.fields != turned {
            let (n, m) = (there.fields.len(), turned.len());
            return Err(format!(
                "`{name}` differs in {n} fields compared with what follows, in {m} the other way"
            ));
        }
        // Most of what is known of a run is shown and not compared.
        if there.name != BlockName::Run && there.equal() == moved.contains(&there.name) {
            let shows = if there.equal() { "no field" } else { "a field" };
            return Err(format!("of `{name}` the comparison shows {shows} that differs"));
        }
    }
    Ok(())
}

fn model_name(path: &std::path::Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

fn listed(blocks: &[BlockName]) -> String {
    let names: Vec<&str> = blocks.iter().map(|b| b.as_str()).collect();
    if names.is_empty() { "no id".into() } else { names.join(", ") }
}
