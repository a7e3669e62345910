//! The loaded logical weights of one model.

use crate::descriptor::RoleName;
use crate::tensor::Weight;
use crate::units::Digest;
use std::collections::BTreeMap;

/// Every logical weight of a model, by role and layer.
#[derive(Clone, Debug)]
pub struct WeightSet {
    weights: BTreeMap<(RoleName, Option<usize>), Weight>,
    pub source: WeightsSource,
}

impl WeightSet {
    /// A set from its parts.
    pub fn new(
        weights: BTreeMap<(RoleName, Option<usize>), Weight>,
        source: WeightsSource,
    ) -> WeightSet {
        WeightSet { weights, source }
    }

    /// The weight of a role (`layer` is `None` for roles that the model has once).
    pub fn get(&self, role: RoleName, layer: Option<usize>) -> Option<&Weight> {
        self.weights.get(&(role, layer))
    }

    /// All weights in a fixed order.
    pub fn iter(&self) -> impl Iterator<Item = (RoleName, Option<usize>, &Weight)> {
        self.weights.iter().map(|((role, layer), w)| (*role, *layer, w))
    }

    /// Bytes of all weights.
    pub fn size_bytes(&self) -> usize {
        self.weights.values().map(Weight::size_bytes).sum()
    }
}

/// Where weights came from, as the manifest records it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WeightsSource {
    /// Files: digest of the logical roles (name, dtype, shape) and of sampled content.
    Checkpoint { roles: Digest, sampled_content: Digest, full_content: Option<Digest> },
    /// A counter-based generator.
    Synthetic { generator: String, version: u32, seed: u64, roles: Digest },
}
