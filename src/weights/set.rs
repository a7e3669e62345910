//! The loaded logical weights of one model.

use super::Artifact;
use crate::descriptor::{Descriptor, RoleName};
use crate::placement::{Form, Stored};
use crate::tensor::{Storage, Weight};
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

    /// What every weight takes, as its sidecar would say. Plain weights count as BF16 whatever their
    /// files hold, so that a placement of theirs can be planned without them.
    pub fn stored(&self, d: &Descriptor) -> Stored {
        if self.artifact.is_none() {
            return Stored::default();
        }
        let form = |role, layer| {
            let form = match &self.get(role, layer)?.storage {
                Storage::Int4(packed) => Form {
                    group: Some(packed.shape.group()),
                    value_bytes: packed
                        .prefill
                        .as_ref()
                        .map_or(0, |kept| value_bytes(&kept.storage)),
                },
                plain => Form { group: None, value_bytes: value_bytes(plain) },
            };
            Some(((role, layer), form))
        };
        let all = d.roles.iter().flat_map(|r| r.instances().into_iter().map(|l| (r.name, l)));
        Stored::of(all.filter_map(|(role, layer)| form(role, layer)))
    }

    /// Bytes of all weights, shared ones once.
    pub fn size_bytes(&self) -> usize {
        self.logical.weights.values().map(Weight::size_bytes).sum()
    }
}

/// Bytes of one value that is not packed.
fn value_bytes(storage: &Storage) -> u64 {
    match storage {
        Storage::Bf16(_) => 2,
        Storage::F32(_) | Storage::Int4(_) => 4,
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
