//! The part of `numerical_policy` about packed weights.

use crate::backend::Policy;
use crate::descriptor::RoleName;
use crate::tensor::{INT4_FORMAT, INT4_VERSION};
use crate::units::Canonical;
use crate::weights::Prefill;
use std::collections::BTreeMap;

/// Which roles are packed, in which groups, and what prefill reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Quantization {
    /// Packed roles and the values along K that share a scale.
    pub roles: BTreeMap<RoleName, usize>,
    pub prefill: Prefill,
}

/// Fields of `quantization`.
pub(super) fn quantization_fields(packed: Option<&Quantization>, policy: Policy) -> Canonical {
    let Some(Quantization { roles, prefill }) = packed else {
        return Canonical::object([
            ("format", Canonical::from("none")),
            ("roles", Canonical::List(Vec::new())),
        ]);
    };
    let (unpacked, activations, sums) = match policy {
        Policy::Fast => (
            "q, exact",
            "i16, one scale per group of k",
            "i32 within a group, exact; groups in f32, ascending",
        ),
        Policy::F32 => ("q * s in f32", "f32", "as gemm"),
        Policy::Reference | Policy::Invariant => {
            ("q * s in f32, rounded to bf16", "bf16", "as gemm")
        }
    };
    let mut named: Vec<(&str, usize)> = roles.iter().map(|(r, g)| (r.as_str(), *g)).collect();
    named.sort_unstable();
    let roles = named.into_iter().map(|(role, group)| {
        Canonical::object([("role", Canonical::from(role)), ("group", group.into())])
    });
    Canonical::object([
        ("format", Canonical::from(INT4_FORMAT)),
        ("version", INT4_VERSION.into()),
        ("roles", Canonical::List(roles.collect())),
        ("prefill", prefill.to_string().into()),
        ("unpacked", unpacked.into()),
        ("activations", activations.into()),
        ("sums", sums.into()),
    ])
}
