//! Recorded manifests.

use super::Block;
use crate::engine::manifest::{BlockName, Manifest};
use std::collections::BTreeSet;

/// A manifest from a record; `None` if this version cannot read it.
pub(in crate::harness) fn manifest_of(recorded: &serde_json::Value) -> Option<Manifest> {
    Manifest::from_json(&serde_json::to_vec(recorded).ok()?).ok()
}

/// Names of the blocks in which arms may differ.
pub(super) fn allowed(differs_in: &BTreeSet<Block>) -> Vec<String> {
    differs_in.iter().flat_map(|b| b.covers()).map(|b| b.to_string()).collect()
}

impl Block {
    /// The blocks in which arms may differ where this one is allowed: packed weights are another
    /// numerical policy and another artifact.
    pub fn covers(self) -> Vec<BlockName> {
        match self {
            Block::NumericalPolicy => vec![BlockName::NumericalPolicy, BlockName::WeightsArtifact],
            _ => vec![self.name()],
        }
    }

    /// The block of the manifest.
    pub fn name(self) -> BlockName {
        match self {
            Block::NumericalPolicy => BlockName::NumericalPolicy,
            Block::Deployment => BlockName::Deployment,
            Block::Storage => BlockName::Storage,
            Block::Build => BlockName::Build,
        }
    }
}
