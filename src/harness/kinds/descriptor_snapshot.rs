//! `descriptor_snapshot`: the committed descriptor of a model is what the adapter derives from its
//! `config.json`, byte for byte.

use crate::descriptor::{Descriptor, DescriptorError, from_dir};
use crate::harness::kind::{
    Case, Cell, DeviceUse, Fault, GateKind, KindSpec, Outcome, PlanScope, PolicyUse, RunContext,
};
use crate::units::Digest;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Committed descriptors against the configs they come from.
#[derive(Debug, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct DescriptorSnapshot {
    /// The snapshots, by model.
    snapshots: BTreeMap<String, Snapshot>,
}

/// One committed descriptor.
#[derive(Debug, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
struct Snapshot {
    /// The descriptor file.
    descriptor: PathBuf,
    /// Folders with a `config.json` (weights optional) that must all give this descriptor.
    sources: Vec<PathBuf>,
    /// SHA-256 of the published `config.json`, which the first source must equal byte for byte.
    #[serde(default)]
    config_sha256: Option<String>,
    /// Parameters of the text model, where a number is published independently.
    #[serde(default)]
    parameters: Option<u64>,
}

impl KindSpec for DescriptorSnapshot {
    const NAME: &'static str = "descriptor_snapshot";
    const DEVICE: DeviceUse = DeviceUse::Host;
    const POLICY: PolicyUse = PolicyUse::None;
}

impl GateKind for DescriptorSnapshot {
    fn cases(&self, _scope: &PlanScope) -> Result<Vec<Case>, Fault> {
        if let Some((name, _)) = self.snapshots.iter().find(|(_, s)| s.sources.is_empty()) {
            return Err(Fault::at("snapshots", format!("`{name}` has no source")));
        }
        Ok(self.snapshots.keys().map(Case::named).collect())
    }

    fn run(&self, cell: &Cell, context: &RunContext) -> Outcome {
        let name = cell.case.as_deref().unwrap_or_default();
        match self.snapshots.get(name) {
            Some(snapshot) => snapshot.check(context).unwrap_or_else(|failed| failed),
            None => Outcome::error(format!("no snapshot `{name}`")),
        }
    }
}

impl Snapshot {
    fn check(&self, context: &RunContext) -> Result<Outcome, Outcome> {
        let path = context.path(&self.descriptor);
        let committed = read(&path)?;
        let held =
            Descriptor::from_json(&path.display().to_string(), &committed).map_err(refused)?;
        if held.to_json().as_bytes() != committed {
            return Err(Outcome::fail(format!(
                "{} is not in canonical form; write it with `assay model descriptor`",
                path.display()
            )));
        }
        for source in &self.sources {
            let derived = from_dir(&context.path(source)).map_err(refused)?;
            let differences = derived.differences(&held);
            if let Some(first) = differences.first() {
                let problem = format!("{}: {first}", path.display());
                return Err(Outcome::fail(problem).with("differences", differences.len()));
            }
        }
        if let Some(expected) = &self.config_sha256 {
            let config = context.path(&self.sources[0]).join("config.json");
            let found = Digest::of(&read(&config)?).to_string();
            if *expected != found {
                return Err(Outcome::fail(format!(
                    "{}: expected the published digest {expected}, found {found}",
                    config.display()
                )));
            }
        }
        match self.parameters {
            Some(expected) if expected != held.parameters() => Err(Outcome::fail(format!(
                "expected {expected} parameters, found {}",
                held.parameters()
            ))),
            _ => Ok(Outcome::pass("derived again, byte for byte")
                .with("descriptor_sha256", Digest::of(&committed).to_string())
                .with("semantic_id", held.semantic().digest().to_string())
                .with("parameters", held.parameters())
                .with("sources", self.sources.len())),
        }
    }
}

fn read(path: &Path) -> Result<Vec<u8>, Outcome> {
    std::fs::read(path).map_err(|e| Outcome::fail(format!("{}: {e}", path.display())))
}

fn refused(error: DescriptorError) -> Outcome {
    Outcome::fail(error.to_string())
}

#[cfg(test)]
mod tests {
    use crate::harness::testing::{problems, root};
    use std::fs;

    const FILE: &str = include_str!("../../../gates/descriptor-snapshots.yaml");

    #[test]
    fn the_shipped_snapshots_hold() {
        assert_eq!(problems(FILE), [""; 0]);
    }

    /// A snapshot that says something else, a config that is not the published one, and a wrong
    /// number of parameters each fail.
    #[test]
    fn planted_defects_fail() {
        let scratch = tempfile::tempdir().unwrap();
        let snapshot = fs::read_to_string(root().join("descriptors/tiny-llama.json")).unwrap();
        let run = |planted: &str, rest: &str| {
            let file = scratch.path().join("planted.json");
            fs::write(&file, planted).unwrap();
            let gate = format!(
                "gate: planted\nclaim: x\ntrack: contract\nkind: descriptor_snapshot\n\
                 snapshots:\n  tiny:\n    descriptor: {}\n    \
                 sources: [../tests/fixtures/llama]\n{rest}",
                file.display()
            );
            problems(&gate).join("\n")
        };
        assert_eq!(run(&snapshot, ""), "");
        let theta = run(&snapshot.replace("500000.0", "10000.0"), "");
        assert!(theta.contains("`rope_theta`: expected 500000.0, found 10000.0"), "{theta}");
        let shard = run(&snapshot.replacen("out_dim", "none", 1), "");
        assert!(shard.contains("`roles.embed.shard`: expected \"out_dim\""), "{shard}");
        let layout = run(&snapshot.replacen("  \"hidden\"", "    \"hidden\"", 1), "");
        assert!(layout.contains("not in canonical form"), "{layout}");
        let digest = run(&snapshot, "    config_sha256: \"00\"\n");
        assert!(digest.contains("expected the published digest 00"), "{digest}");
        let parameters = run(&snapshot, "    parameters: 1\n");
        assert!(parameters.contains("expected 1 parameters"), "{parameters}");
    }
}
