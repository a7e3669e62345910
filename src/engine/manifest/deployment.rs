//! `deployment`: which device holds and computes what.

use super::NOT_APPLICABLE;
use crate::placement::{Device, Placement};
use crate::units::Canonical;

/// Fields of the block.
///
/// Where one device holds every layer, the table of layers is not written out: how many layers
/// there are belongs to the model. Neither do files show here: whether weights could be used in
/// place depends on how they lie, and storage moves no other identity.
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
        _ => Canonical::list(placement.layer_devices.iter().copied()),
    };
    let ranks = || Canonical::object([("size", Canonical::from(1usize)), ("rank", 0usize.into())]);
    Canonical::object([
        ("placement_policy", Canonical::from(placement.policy())),
        ("devices", Canonical::List(devices.collect())),
        ("layer_devices", layers),
        ("tensor_parallel", ranks()),
        ("expert_parallel", ranks()),
        ("shard_rules", NOT_APPLICABLE.into()),
        (
            "allocation",
            Canonical::object([
                ("attention_cache", Canonical::from("paged")),
                ("page_tokens", page_tokens.into()),
            ]),
        ),
        ("transfer", NOT_APPLICABLE.into()),
    ])
}
