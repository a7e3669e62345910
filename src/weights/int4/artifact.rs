//! What identifies packed weights.

use crate::descriptor::RoleName;
use crate::tensor::{INT4_FORMAT, INT4_VERSION, Int4};
use crate::units::{Canonical, Digest};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;

/// What rows of prefill read where weights are packed.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    Hash,
    PartialOrd,
    Ord,
    Serialize,
    Deserialize,
    schemars::JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Prefill {
    /// The weights before quantisation, kept beside: prefill has the bits it had.
    Bf16,
    /// The packed weights, as decode does: less memory.
    Packed,
}

impl fmt::Display for Prefill {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Prefill::Bf16 => "bf16",
            Prefill::Packed => "packed",
        })
    }
}

/// The packed part of a set of weights.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Artifact {
    /// Of every packed weight's role, layer, extents, group, codes and scales. The same whether the
    /// weights were packed in memory or read from a file.
    pub digest: Digest,
    /// The packed roles and their group.
    pub roles: BTreeMap<RoleName, usize>,
    pub prefill: Prefill,
}

/// Collects the digest of an [`Artifact`].
#[derive(Debug, Default)]
pub(in crate::weights) struct PackedDigest(BTreeMap<(RoleName, Option<usize>), Canonical>);

impl PackedDigest {
    /// Adds a packed weight.
    pub(in crate::weights) fn add(&mut self, role: RoleName, layer: Option<usize>, packed: &Int4) {
        let codes = Digest::of(packed.codes.as_bytes());
        let scales = Digest::of(packed.scales.as_bytes());
        let (rows, cols) = (packed.shape.rows(), packed.shape.cols());
        self.add_digests(role, layer, [rows, cols], packed.shape.group(), codes, scales);
    }

    /// Adds a packed weight by the digests of its parts.
    pub(in crate::weights) fn add_digests(
        &mut self,
        role: RoleName,
        layer: Option<usize>,
        shape: [usize; 2],
        group: usize,
        codes: Digest,
        scales: Digest,
    ) {
        let entry = Canonical::object([
            ("role", Canonical::from(role.as_str())),
            ("layer", Canonical::from(layer)),
            ("shape", Canonical::list(shape)),
            ("group", group.into()),
            ("codes", codes.to_string().into()),
            ("scales", scales.to_string().into()),
        ]);
        self.0.insert((role, layer), entry);
    }

    pub(in crate::weights) fn finish(self) -> Digest {
        // By name, so that the digest does not move when roles are added to the list of all.
        let mut weights: Vec<_> = self.0.into_iter().collect();
        weights.sort_by_key(|((role, layer), _)| (role.as_str(), *layer));
        Canonical::object([
            ("format", Canonical::from(INT4_FORMAT)),
            ("version", INT4_VERSION.into()),
            ("weights", Canonical::List(weights.into_iter().map(|(_, entry)| entry).collect())),
        ])
        .digest()
    }
}
