//! The manifest as a whole, and its JSON.

use super::{Block, BlockName, unestablished};
use crate::units::{Canonical, Digest};
use serde_json::{Map, Value};

/// Version of the layout below; a reader refuses later ones.
pub const MANIFEST_VERSION: u64 = 1;

/// Which execution a result observed.
#[derive(Clone, Debug, PartialEq)]
pub struct Manifest {
    /// One block per name, in the order of [`BlockName::ALL`].
    blocks: [Block; 8],
}

impl Manifest {
    /// A manifest whose fields come from `fields`, block by block.
    pub fn new(mut fields: impl FnMut(BlockName) -> Canonical) -> Manifest {
        Manifest { blocks: BlockName::ALL.map(|name| Block::new(name, fields(name))) }
    }

    /// The block of this name.
    pub fn block(&self, name: BlockName) -> &Block {
        &self.blocks[name as usize]
    }

    /// Every block, in the order they are written.
    pub fn blocks(&self) -> &[Block] {
        &self.blocks
    }

    /// The digest of a block's fields.
    pub fn id(&self, name: BlockName) -> Digest {
        self.block(name).id()
    }

    /// The ids that a record carries beside its evidence: all but the run's, which no two
    /// executions share.
    pub fn ids(&self) -> Map<String, Value> {
        self.blocks
            .iter()
            .filter(|b| b.name != BlockName::Run)
            .map(|b| (b.name.id_key(), Value::from(b.id().to_string())))
            .collect()
    }

    /// Facts that are not established, by block and path.
    pub fn unestablished(&self) -> Vec<(BlockName, String)> {
        let mut found = Vec::new();
        for block in &self.blocks {
            found.extend(unestablished(&block.fields).into_iter().map(|path| (block.name, path)));
        }
        found
    }

    /// The manifest with other fields in one block.
    pub fn with(&self, name: BlockName, fields: Canonical) -> Manifest {
        let mut manifest = self.clone();
        manifest.blocks[name as usize] = Block::new(name, fields);
        manifest
    }

    /// The manifest as JSON, blocks in their fixed order.
    pub fn to_json(&self) -> Value {
        let mut document = Map::new();
        let mut provenance = Map::new();
        document.insert("manifest_version".into(), MANIFEST_VERSION.into());
        for block in &self.blocks {
            let mut value = Map::new();
            value.insert("fields".into(), block.fields.to_json());
            value.insert(block.name.id_key(), block.id().to_string().into());
            match block.name.as_str().strip_prefix("provenance.") {
                Some(half) => provenance.insert(half.into(), value.into()),
                None => document.insert(block.name.as_str().into(), value.into()),
            };
        }
        document.insert("provenance".into(), provenance.into());
        document.into()
    }
}
