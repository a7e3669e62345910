//! Recorded manifests.

use super::Block;
use crate::engine::manifest::{BlockName, Manifest};

/// A manifest from a record; `None` if this version cannot read it.
pub(in crate::harness) fn manifest_of(recorded: &serde_json::Value) -> Option<Manifest> {
    Manifest::from_json(&serde_json::to_vec(recorded).ok()?).ok()
}

impl Block {
    /// The block of the manifest.
    pub fn name(self) -> BlockName {
        match self {
            Block::NumericalPolicy => BlockName::NumericalPolicy,
            Block::Deployment => BlockName::Deployment,
            Block::Storage => BlockName::Storage,
        }
    }
}
