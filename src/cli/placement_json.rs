//! A placement as any command prints it with `--json`.

use crate::placement::Placement;
use serde_json::{Value, json};

/// What decides the bits of ranks, and their devices, in rank order.
pub(crate) fn placement_json(p: &Placement) -> Value {
    json!({
        "policy": p.policy().name(),
        "stages": p.stages.len(),
        "tensor_parallel": p.tensor,
        "expert_parallel": p.expert,
        "devices": p.devices.iter().map(ToString::to_string).collect::<Vec<_>>(),
    })
}
