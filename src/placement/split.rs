//! The layer split: consecutive layers, balanced by the bytes of their weights.

use super::{PlacementError, Stored};
use crate::descriptor::{Descriptor, RoleName, Scope};
use std::ops::Range;

/// Cuts the layers into `stages` so that the largest stage is as small as can be. The first stage
/// counts the embedding, the last the final norm and the head.
pub(super) fn stages(
    d: &Descriptor,
    stages: usize,
    stored: &Stored,
) -> Result<Vec<Range<usize>>, PlacementError> {
    let layers = d.layers();
    if stages > layers {
        return Err(PlacementError::Stages { stages, layers });
    }
    let weights = layer_bytes(d, stored);
    let total: u64 = weights.iter().sum();
    let largest = weights.iter().copied().max().unwrap_or(0);
    let (mut low, mut high) = (largest.max(total.div_ceil(stages as u64)), total);
    while low < high {
        let limit = low + (high - low) / 2;
        match fill(&weights, stages, limit) {
            Some(_) => high = limit,
            None => low = limit + 1,
        }
    }
    Ok(fill(&weights, stages, high).unwrap_or_default())
}

/// Stages of at most `limit`, filled from the front; every stage gets a layer.
fn fill(weights: &[u64], stages: usize, limit: u64) -> Option<Vec<Range<usize>>> {
    let mut cut = Vec::with_capacity(stages);
    let (mut start, mut held) = (0, 0);
    for (layer, weight) in weights.iter().enumerate() {
        let needed = weights.len() - layer == stages - cut.len() - 1;
        if layer > start && (held + weight > limit || needed) {
            cut.push(start..layer);
            (start, held) = (layer, 0);
        }
        held += weight;
        if held > limit || cut.len() == stages {
            return None;
        }
    }
    cut.push(start..weights.len());
    (cut.len() == stages).then_some(cut)
}

/// Bytes of every layer's weights, those of the whole model with the layer next to them.
fn layer_bytes(d: &Descriptor, stored: &Stored) -> Vec<u64> {
    let mut bytes = vec![0; d.layers()];
    let last = d.layers() - 1;
    for role in &d.roles {
        let elements = role.shape.iter().map(|e| *e as u64).product::<u64>();
        let each = |layer| stored.bytes(role.name, layer, elements, false);
        match &role.scope {
            Scope::Model if role.name == RoleName::Embed => bytes[0] += each(None),
            Scope::Model => bytes[last] += each(None),
            Scope::Layers(layers) => layers.iter().for_each(|l| bytes[*l] += each(Some(*l))),
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_stage_is_as_small_as_can_be() {
        let best = |weights: &[u64], stages: usize| {
            let total = weights.iter().sum();
            (0..=total).find_map(|limit| fill(weights, stages, limit)).unwrap()
        };
        assert_eq!(best(&[1, 1, 1, 1], 2), [0..2, 2..4]);
        assert_eq!(best(&[9, 1, 1, 1], 2), [0..1, 1..4]);
        assert_eq!(best(&[1, 1, 1, 9], 3), [0..2, 2..3, 3..4]);
        assert_eq!(best(&[5, 5, 5], 3), [0..1, 1..2, 2..3]);
        assert_eq!(best(&[0, 0, 7, 0], 4), [0..1, 1..2, 2..3, 3..4]);
    }
}
