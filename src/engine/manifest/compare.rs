//! The field-by-field difference of two manifests.

use super::run::{COMPARED, FULL_CONTENT, INFORMATIONAL};
use super::{Block, BlockName, Manifest, leaves, unestablished};
use crate::units::{Canonical, Digest, mutant};
use std::collections::BTreeMap;

/// One field that differs; a side that lacks it is `None`.
#[derive(Clone, Debug, PartialEq)]
pub struct FieldDifference {
    /// `effective.norm_epsilon`, `bindings[3].implementation`.
    pub path: String,
    pub left: Option<Canonical>,
    pub right: Option<Canonical>,
}

/// How one block of two manifests compares. Of `provenance.run` only the compared part is looked
/// at.
#[derive(Clone, Debug, PartialEq)]
pub struct BlockDifference {
    pub name: BlockName,
    pub left_id: Digest,
    pub right_id: Digest,
    /// Empty where the blocks agree.
    pub fields: Vec<FieldDifference>,
    /// Paths of facts that the left or the right side does not establish.
    pub unestablished: Vec<String>,
}

impl BlockDifference {
    /// Whether the two blocks agree.
    pub fn equal(&self) -> bool {
        self.fields.is_empty()
    }
}

/// A fact of the run that is shown and not compared.
#[derive(Clone, Debug, PartialEq)]
pub struct Informational {
    pub path: String,
    pub left: Option<Canonical>,
    pub right: Option<Canonical>,
}

/// How two manifests compare.
#[derive(Clone, Debug, PartialEq)]
pub struct ManifestDifference {
    /// One per block, in the order of [`BlockName::ALL`].
    pub blocks: Vec<BlockDifference>,
    /// Informational facts that differ.
    pub informational: Vec<Informational>,
}

impl ManifestDifference {
    /// How this block compares.
    pub fn block(&self, name: BlockName) -> &BlockDifference {
        &self.blocks[name as usize]
    }

    /// The blocks that differ.
    pub fn differing(&self) -> Vec<BlockName> {
        self.blocks.iter().filter(|b| !b.equal()).map(|b| b.name).collect()
    }
}

/// Compares two manifests field by field.
pub fn compare(left: &Manifest, right: &Manifest) -> ManifestDifference {
    let mut blocks: Vec<BlockDifference> = BlockName::ALL
        .into_iter()
        .map(|name| difference(left.block(name), right.block(name)))
        .collect();
    let informational = fields(
        &part(left.block(BlockName::Run), INFORMATIONAL),
        &part(right.block(BlockName::Run), INFORMATIONAL),
    );
    // A sampled digest can agree where the full ones do not; where both sides have the full one,
    // it speaks about the weights.
    let (full, informational): (Vec<_>, Vec<_>) =
        informational.into_iter().partition(|d| d.path == FULL_CONTENT);
    let known = |v: &Option<Canonical>| v.as_ref().is_some_and(|v| unestablished(v).is_empty());
    blocks[BlockName::WeightsSource as usize]
        .fields
        .extend(full.into_iter().filter(|d| known(&d.left) && known(&d.right)));
    let informational = informational
        .into_iter()
        .map(|FieldDifference { path, left, right }| Informational { path, left, right })
        .collect();
    ManifestDifference { blocks, informational }
}

fn difference(left: &Block, right: &Block) -> BlockDifference {
    let compared = |block: &Block| match block.name {
        BlockName::Run => part(block, COMPARED),
        _ => block.fields.clone(),
    };
    let (l, r) = (compared(left), compared(right));
    let mut open = unestablished(&l);
    open.extend(unestablished(&r).into_iter().filter(|p| !open.contains(p)).collect::<Vec<_>>());
    BlockDifference {
        name: left.name,
        left_id: left.id(),
        right_id: right.id(),
        fields: fields(&l, &r),
        unestablished: open,
    }
}

fn part(block: &Block, key: &str) -> Canonical {
    match &block.fields {
        Canonical::Object(fields) => fields.get(key).cloned().unwrap_or(Canonical::Null),
        _ => Canonical::Null,
    }
}

fn fields(left: &Canonical, right: &Canonical) -> Vec<FieldDifference> {
    let leaves = |value: &Canonical| leaves(value).into_iter().collect::<BTreeMap<_, _>>();
    let (left, mut right) = (leaves(left), leaves(right));
    let mut found = Vec::new();
    for (path, l) in left {
        let r = right.remove(&path);
        if r.as_ref() != Some(&l) {
            found.push(FieldDifference { path, left: Some(l), right: r });
        }
    }
    if mutant!("compare_ignores_added_fields") {
        right.clear();
    }
    found.extend(right.into_iter().map(|(path, r)| FieldDifference {
        path,
        left: None,
        right: Some(r),
    }));
    found.sort_by(|a, b| a.path.cmp(&b.path));
    found
}
