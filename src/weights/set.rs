//! The loaded logical weights of one model.

use super::Artifact;
use crate::descriptor::RoleName;
use crate::tensor::Weight;
use crate::units::Digest;
use std::collections::BTreeMap;

/// Every logical weight of a model, by role and layer.
///
/// A tied role has no weight of its own, unless it is packed: [`WeightSet::get`] gives the one that
/// it shares.
#[derive(Clone, Debug)]
pub struct WeightSet {
    logical: Logical,
    source: WeightsSource,
    artifact: Option<Artifact>,
}

/// Weights and ties, before anything is said about their source.
#[derive(Clone, Debug)]
pub(super) struct Logical {
    pub(super) weights: BTreeMap<(RoleName, Option<usize>), Weight>,
    /// Tied role → the role whose weight it shares.
    pub(super) ties: BTreeMap<RoleName, RoleName>,
}

impl WeightSet {
    pub(super) fn new(logical: Logical, source: WeightsSource) -> WeightSet {
        WeightSet { logical, source, artifact: None }
    }

    /// Weights of which some are packed; `source` is what they were packed from.
    pub(super) fn packed(logical: Logical, source: WeightsSource, artifact: Artifact) -> WeightSet {
        WeightSet { logical, source, artifact: Some(artifact) }
    }

    pub(super) fn into_logical(self) -> Logical {
        self.logical
    }

    /// The packed part, if some weights are.
    pub fn artifact(&self) -> Option<&Artifact> {
        self.artifact.as_ref()
    }

    pub(super) fn logical(&self) -> &Logical {
        &self.logical
    }

    /// The weight of a role (`layer` is `None` for roles that the model has once).
    pub fn get(&self, role: RoleName, layer: Option<usize>) -> Option<&Weight> {
        let own = self.logical.weights.get(&(role, layer));
        own.or_else(|| self.logical.weights.get(&(*self.logical.ties.get(&role)?, layer)))
    }

    /// All weights in a fixed order, shared ones once.
    pub fn iter(&self) -> impl Iterator<Item = (RoleName, Option<usize>, &Weight)> {
        self.logical.weights.iter().map(|((role, layer), w)| (*role, *layer, w))
    }

    /// Tied roles and the role whose weight each shares.
    pub fn ties(&self) -> impl Iterator<Item = (RoleName, RoleName)> {
        self.logical.ties.iter().map(|(tied, to)| (*tied, *to))
    }

    /// Where the weights came from.
    pub fn source(&self) -> &WeightsSource {
        &self.source
    }

    /// Bytes of all weights, shared ones once.
    pub fn size_bytes(&self) -> usize {
        self.logical.weights.values().map(Weight::size_bytes).sum()
    }
}

/// Where weights came from, as the manifest records it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WeightsSource {
    /// Files: digest of the logical roles (name, layer, dtype, shape) and of content. Both are of
    /// logical weights, so that another file layout of the same weights gives the same digests.
    Checkpoint { roles: Digest, sampled_content: Digest, full_content: Option<Digest> },
    /// A counter-based generator.
    Synthetic { generator: String, version: u32, seed: u64, roles: Digest },
}
