//! What weights take as they are stored.

use super::Held;
use crate::descriptor::RoleName;
use std::collections::BTreeMap;

const BF16_BYTES: u64 = 2;
/// Codes of two values are one byte.
const VALUES_PER_BYTE: u64 = 2;

/// How the values of one weight are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Form {
    /// Values along K that share a BF16 scale, where the weight is packed into four bits.
    pub group: Option<usize>,
    /// Bytes of a value in full; 0 where only the packed ones are kept.
    pub value_bytes: u64,
}

impl Form {
    const BF16: Form = Form { group: None, value_bytes: BF16_BYTES };
}

/// The forms of a model's weights; one that is not named is in BF16.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stored(BTreeMap<(RoleName, Option<usize>), Form>);

impl Stored {
    /// From the form of every weight that is not simply in BF16.
    pub fn of(forms: impl IntoIterator<Item = ((RoleName, Option<usize>), Form)>) -> Stored {
        Stored(forms.into_iter().collect())
    }

    /// Bytes of so many elements of a weight. One that shares the memory of another takes only what
    /// is packed.
    pub(super) fn bytes(
        &self,
        role: RoleName,
        layer: Option<usize>,
        elements: u64,
        shared: bool,
    ) -> u64 {
        let form = self.0.get(&(role, layer)).copied().unwrap_or(Form::BF16);
        let full = if shared { 0 } else { elements * form.value_bytes };
        let packed = form
            .group
            .map_or(0, |group| elements / VALUES_PER_BYTE + elements / group as u64 * BF16_BYTES);
        full + packed
    }

    /// Bytes of so many elements of a part that a rank holds.
    pub(super) fn of_held(&self, held: &Held<'_>, elements: u64) -> u64 {
        self.bytes(held.slice.role, held.layer, elements, held.shared)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Four bits and a scale per group, beside them what prefill reads; a tied head takes what is packed.
    #[test]
    fn forms_have_their_bytes() {
        let of = |form, shared| {
            let stored = Stored::of([((RoleName::LmHead, None), form)]);
            stored.bytes(RoleName::LmHead, None, 1024, shared)
        };
        let packed = Form { group: Some(32), value_bytes: 0 };
        assert_eq!(of(packed, false), 512 + 64);
        assert_eq!(of(Form { value_bytes: 2, ..packed }, false), 512 + 64 + 2048);
        assert_eq!(of(Form { value_bytes: 2, ..packed }, true), 512 + 64);
        assert_eq!(of(Form { group: None, value_bytes: 4 }, false), 4096);
        assert_eq!(Stored::default().bytes(RoleName::Embed, None, 1024, false), 2048);
    }
}
