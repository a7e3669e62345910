//! What identifies weights: digests of logical roles and of logical content.
//!
//! Content is taken weight by weight in the order of role name and layer, as little-endian
//! elements in the type that they have in memory (F16 files are widened to F32), so file layout,
//! tensor names and shards do not matter.

use super::set::Logical;
use super::{WeightSet, WeightsSource};
use crate::descriptor::RoleName;
use crate::tensor::{Storage, Weight};
use crate::units::mutant;
use crate::units::{Canonical, Digest, Hasher};
use rayon::prelude::*;

/// Named in the digested bytes, so that another rule gives other digests.
const SAMPLED_RULE: &str = "assay sampled content 1";
const FULL_RULE: &str = "assay full content 1";
const PAGE_BYTES: usize = 4096;
/// Pages taken from a weight: the first, the last, and others evenly between them.
const SAMPLED_PAGES: usize = 16;
/// Full content is digested in blocks of this size, so that one large weight uses every core.
const BLOCK_BYTES: usize = 16 << 20;

/// The source of weights that were read from files.
pub(super) fn checkpoint_source(set: &Logical, full: bool) -> WeightsSource {
    WeightsSource::Checkpoint {
        roles: roles_digest(set),
        sampled_content: sampled_content_digest(set),
        full_content: full.then(|| full_content(set)),
    }
}

/// Digest of the logical roles: name, layer, element type in memory, shape; and ties.
pub(super) fn roles_digest(set: &Logical) -> Digest {
    let roles = ordered(set).into_iter().map(|(role, layer, weight)| {
        Canonical::object([
            ("role", Canonical::from(role.as_str())),
            ("layer", Canonical::from(layer)),
            ("dtype", Canonical::from(dtype(weight))),
            ("shape", Canonical::list([weight.rows, weight.cols])),
        ])
    });
    let ties = set.ties.iter().map(|(tied, to)| (tied.as_str(), Canonical::from(to.as_str())));
    Canonical::object([
        ("roles", Canonical::List(roles.collect())),
        ("ties", Canonical::object(ties)),
    ])
    .digest()
}

/// Digest of a sample of the content: up to 16 pages of 4096 bytes of each weight.
///
/// It tells checkpoints apart that differ everywhere, as trained ones do; a difference in a few
/// elements of a large weight needs [`full_content_digest`].
fn sampled_content_digest(set: &Logical) -> Digest {
    content_digest(set, SAMPLED_RULE, |weight| {
        let size = weight.size_bytes();
        let pages = size.div_ceil(PAGE_BYTES);
        let taken = pages.min(SAMPLED_PAGES);
        let mut hasher = Hasher::new();
        for i in 0..taken {
            let page = if taken < pages { i * (pages - 1) / (SAMPLED_PAGES - 1) } else { i };
            let start = page * PAGE_BYTES;
            hasher.update(&weight.as_bytes()[start..size.min(start + PAGE_BYTES)]);
        }
        hasher.finish()
    })
}

/// Digest of every byte of content.
pub fn full_content_digest(set: &WeightSet) -> Digest {
    full_content(set.logical())
}

fn full_content(set: &Logical) -> Digest {
    content_digest(set, FULL_RULE, |weight| {
        let size = weight.size_bytes();
        let blocks: Vec<Digest> = (0..size.div_ceil(BLOCK_BYTES))
            .into_par_iter()
            .map(|block| {
                let start = block * BLOCK_BYTES;
                Digest::of(&weight.as_bytes()[start..size.min(start + BLOCK_BYTES)])
            })
            .collect();
        let mut hasher = Hasher::new();
        blocks.iter().for_each(|digest| hasher.update(&digest.0));
        hasher.finish()
    })
}

fn content_digest(
    set: &Logical,
    rule: &str,
    of_weight: impl Fn(&Weight) -> Digest + Sync,
) -> Digest {
    let digests: Vec<Canonical> = ordered(set)
        .into_par_iter()
        .map(|(_, _, weight)| Canonical::from(of_weight(weight).to_string()))
        .collect();
    Canonical::object([("rule", Canonical::from(rule)), ("weights", Canonical::List(digests))])
        .digest()
}

/// Weights by role name and layer: an order that does not move when roles are added.
fn ordered(set: &Logical) -> Vec<(RoleName, Option<usize>, &Weight)> {
    let mut weights: Vec<_> = set.weights.iter().map(|((r, l), w)| (*r, *l, w)).collect();
    if !mutant!("content_in_file_order") {
        weights.sort_by_key(|(role, layer, _)| (role.as_str(), *layer));
    }
    weights
}

fn dtype(weight: &Weight) -> &'static str {
    match weight.storage {
        Storage::Bf16(_) => "BF16",
        Storage::F32(_) => "F32",
        Storage::Int4(_) => "INT4",
    }
}
