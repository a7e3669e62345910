//! `deployment`: which device holds and computes what.

use super::NOT_APPLICABLE;
use crate::placement::{Device, Placement};
use crate::units::Canonical;

/// Fields of the block.
///
/// Where one rank holds every layer, the table of layers is not written out: how many layers there
/// are belongs to the model. Neither do files show here: whether weights could be used in place
/// depends on how they lie, and storage moves no other identity.
pub fn deployment_fields(placement: &Placement, page_tokens: usize) -> Canonical {
    let devices = placement.devices.iter().map(|device| {
        let (kind, ordinal) = match device {
            Device::Cpu => ("cpu", 0),
            Device::Cuda(ordinal) => ("cuda", *ordinal),
        };
        Canonical::object([("kind", Canonical::from(kind)), ("ordinal", ordinal.into())])
    });
    let layers = match placement.devices.len() {
        1 => "all on device 0".into(),
        _ => Canonical::list(placement.layer_ranks()),
    };
    // One process holds every rank.
    let ranks = |size: usize| {
        let rank = if size == 1 { Canonical::from(0usize) } else { "all in one process".into() };
        Canonical::object([("size", Canonical::from(size)), ("rank", rank)])
    };
    let divided = placement.tensor > 1 || placement.expert > 1;
    let ranks_meet = placement.devices.len() > 1;
    let or_not =
        |applies: bool, text: &str| Canonical::from(if applies { text } else { NOT_APPLICABLE });
    Canonical::object([
        ("placement_policy", Canonical::from(placement.policy().name())),
        ("devices", Canonical::List(devices.collect())),
        ("layer_devices", layers),
        ("tensor_parallel", ranks(placement.tensor)),
        ("expert_parallel", ranks(placement.expert)),
        ("shard_rules", or_not(divided, "the descriptor's, one per role")),
        (
            "allocation",
            Canonical::object([
                ("attention_cache", Canonical::from("paged")),
                ("page_tokens", page_tokens.into()),
            ]),
        ),
        ("transfer", or_not(ranks_meet, "shared memory of one process")),
    ])
}
