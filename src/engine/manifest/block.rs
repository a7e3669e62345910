//! One block of a manifest.

use crate::units::{Canonical, Digest};
use serde::{Deserialize, Serialize};
use std::fmt;

/// How a fact is spelt whose subject takes no part (no CUDA library in a run on the CPU). It is
/// established, unlike the words of [`unestablished`].
pub const NOT_APPLICABLE: &str = "not_applicable";

/// Spellings of facts that are not established.
const UNESTABLISHED: [&str; 4] = ["unknown", "unavailable", "unsupported", "unspecified"];

/// The blocks of a manifest, in the order they are written.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    Hash,
    PartialOrd,
    Ord,
    Serialize,
    Deserialize,
    schemars::JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum BlockName {
    /// What the model means.
    Semantic,
    /// How it is computed.
    NumericalPolicy,
    /// Where it runs.
    Deployment,
    /// How the weights lie in files.
    Storage,
    /// What the weights are.
    WeightsSource,
    /// A file derived from the weights.
    WeightsArtifact,
    /// What was compiled, by what.
    #[serde(rename = "provenance.build")]
    Build,
    /// The machine and the moment.
    #[serde(rename = "provenance.run")]
    Run,
}

impl BlockName {
    /// Every block.
    pub const ALL: [BlockName; 8] = [
        BlockName::Semantic,
        BlockName::NumericalPolicy,
        BlockName::Deployment,
        BlockName::Storage,
        BlockName::WeightsSource,
        BlockName::WeightsArtifact,
        BlockName::Build,
        BlockName::Run,
    ];

    /// The name in files and messages; the two halves of provenance are `provenance.build` and
    /// `provenance.run`.
    pub fn as_str(self) -> &'static str {
        match self {
            BlockName::Semantic => "semantic",
            BlockName::NumericalPolicy => "numerical_policy",
            BlockName::Deployment => "deployment",
            BlockName::Storage => "storage",
            BlockName::WeightsSource => "weights_source",
            BlockName::WeightsArtifact => "weights_artifact",
            BlockName::Build => "provenance.build",
            BlockName::Run => "provenance.run",
        }
    }

    /// The key of the block's digest: `semantic_id`, …, `build_id`, `run_id`.
    pub fn id_key(self) -> String {
        format!("{}_id", self.as_str().trim_start_matches("provenance."))
    }

    /// The block of this name.
    pub fn parse(name: &str) -> Option<BlockName> {
        Self::ALL.into_iter().find(|b| b.as_str() == name)
    }
}

impl fmt::Display for BlockName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Fields and their digest.
#[derive(Clone, Debug, PartialEq)]
pub struct Block {
    pub name: BlockName,
    pub fields: Canonical,
    id: Digest,
}

impl Block {
    /// A block of these fields. Reals take their canonical spelling, so that a block that was
    /// written and read again is equal to itself.
    pub fn new(name: BlockName, fields: Canonical) -> Block {
        let id = fields.digest();
        Block { name, fields: spelt(fields), id }
    }

    /// SHA-256 of the canonical fields.
    pub fn id(&self) -> Digest {
        self.id
    }
}

fn spelt(value: Canonical) -> Canonical {
    match value {
        Canonical::Real(_) => Canonical::Text(value.encode().trim_matches('"').to_owned()),
        Canonical::List(items) => Canonical::List(items.into_iter().map(spelt).collect()),
        Canonical::Object(fields) => {
            Canonical::Object(fields.into_iter().map(|(k, v)| (k, spelt(v))).collect())
        }
        other => other,
    }
}

/// The fields below `fields` whose value is a spelling of "not established", by path
/// (`gemm.algorithm`, `devices[0].driver`).
pub fn unestablished(fields: &Canonical) -> Vec<String> {
    let mut found = Vec::new();
    walk(fields, String::new(), &mut |path, value| {
        if matches!(value, Canonical::Text(t) if UNESTABLISHED.contains(&t.as_str())) {
            found.push(path.to_owned());
        }
    });
    found
}

/// Every value below `fields` that holds no others, with its path.
pub fn leaves(fields: &Canonical) -> Vec<(String, Canonical)> {
    let mut found = Vec::new();
    walk(fields, String::new(), &mut |path, leaf| found.push((path.to_owned(), leaf.clone())));
    found
}

/// Visits every value that holds no others, with its path.
fn walk(value: &Canonical, path: String, visit: &mut impl FnMut(&str, &Canonical)) {
    match value {
        Canonical::Object(fields) if !fields.is_empty() => {
            for (key, value) in fields {
                let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
                walk(value, path, visit);
            }
        }
        Canonical::List(items) if !items.is_empty() => {
            for (i, item) in items.iter().enumerate() {
                walk(item, format!("{path}[{i}]"), visit);
            }
        }
        leaf => visit(&path, leaf),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unestablished_facts_are_found_at_any_depth() {
        let fields = Canonical::object([
            ("a", Canonical::from("unknown")),
            ("b", Canonical::object([("c", Canonical::list(["x", "unavailable"]))])),
            ("d", Canonical::from(NOT_APPLICABLE)),
            ("e", Canonical::from("unspecified, but more")),
        ]);
        assert_eq!(unestablished(&fields), ["a", "b.c[1]"]);
    }

    #[test]
    fn keys_follow_the_names() {
        let keys: Vec<String> = BlockName::ALL.into_iter().map(BlockName::id_key).collect();
        assert_eq!(
            keys,
            [
                "semantic_id",
                "numerical_policy_id",
                "deployment_id",
                "storage_id",
                "weights_source_id",
                "weights_artifact_id",
                "build_id",
                "run_id"
            ]
        );
    }
}
