//! The loaded logical weights of one model.

use crate::descriptor::RoleName;
use crate::tensor::Weight;
use crate::units::Digest;
use std::collections::BTreeMap;

/// Every logical weight of a model, by role and layer.
///
/// A tied role has no weight of its own: [`WeightSet::get`] gives the one that it shares.
#[derive(Clone, Debug)]
pub struct WeightSet {
    logical: Logical,
    source: WeightsSource,
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
        WeightSet { logical, source }
    }

    pub(super) fn logical(&self) -> &Logical {
        &self.logical
    }

    /// The weight of a role (`layer` is `None` for roles that the model has once).
    pub fn get(&self, role: RoleName, layer: Option<usize>) -> Option<&Weight> {
        let role = self.logical.ties.get(&role).copied().unwrap_or(role);
        self.logical.weights.get(&(role, layer))
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
