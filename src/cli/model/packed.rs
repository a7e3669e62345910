//! What weights take as a folder of packed ones holds them.

use crate::descriptor::RoleName;
use crate::placement::Held;
use crate::weights::{Prefill, Sidecar};
use std::collections::BTreeMap;

const BF16_BYTES: u64 = 2;
/// Codes of two values are one byte.
const VALUES_PER_BYTE: u64 = 2;

/// Which weights are packed, and in what groups.
#[derive(Debug)]
pub(super) struct Packed {
    groups: BTreeMap<(RoleName, Option<usize>), usize>,
    prefill: Prefill,
}

impl Packed {
    pub(super) fn of(sidecar: &Sidecar) -> Packed {
        let groups = sidecar.quantised().map(|(w, packed)| ((w.role, w.layer), packed.group));
        Packed { groups: groups.collect(), prefill: sidecar.prefill }
    }

    /// Bytes of a part: codes, scales and what prefill reads where it is packed, BF16 elsewhere.
    pub(super) fn bytes(&self, held: &Held<'_>) -> u64 {
        let elements = held.slice.elements();
        let wide = if held.shared { 0 } else { elements * BF16_BYTES };
        match self.groups.get(&(held.slice.role, held.layer)) {
            Some(group) => {
                let scales = elements / *group as u64 * BF16_BYTES;
                let kept = if self.prefill == Prefill::Bf16 { wide } else { 0 };
                elements / VALUES_PER_BYTE + scales + kept
            }
            None => wide,
        }
    }
}
