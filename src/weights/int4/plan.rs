//! What a conversion will write: which tensors, in which file, at which byte. Pure; nothing is read
//! but headers.

use super::sidecar::{PLAN_KEY, tensor_names};
use super::{Prefill, QuantiseError, Recipe};
use crate::descriptor::{Descriptor, RoleName};
use crate::tensor::{DType, Int4Shape};
use crate::units::{Canonical, Digest};
use crate::weights::resolve::{Located, matrix, resolve};
use crate::weights::shards::SINGLE;
use crate::weights::{Checkpoint, CheckpointError};
use std::collections::{BTreeMap, BTreeSet};

/// A weight that is packed.
#[derive(Clone, Debug)]
pub(super) struct Packing {
    pub(super) role: RoleName,
    pub(super) layer: Option<usize>,
    /// Rows of all experts, where there is a matrix for each.
    pub(super) shape: Int4Shape,
    pub(super) experts: Option<usize>,
    pub(super) located: Located,
}

/// Something that goes into a file.
#[derive(Clone, Debug)]
pub(super) enum Item {
    /// A tensor of the source, byte for byte.
    Tensor { name: String, dtype: DType, shape: Vec<usize>, bytes: u64 },
    /// Codes and scales.
    Packed(Box<Packing>),
}

impl Item {
    fn bytes(&self) -> u64 {
        match self {
            Item::Tensor { bytes, .. } => *bytes,
            Item::Packed(p) => (p.shape.code_bytes() + 2 * p.shape.scale_count()) as u64,
        }
    }

    /// Wide elements first, so that all are aligned; packed parts are multiples of 16 bytes.
    fn order(&self) -> u8 {
        match self {
            Item::Tensor { dtype, .. } if dtype.size_bytes() > 1 => 8 - dtype.size_bytes() as u8,
            Item::Packed(_) => 8,
            Item::Tensor { .. } => 9,
        }
    }

    fn name(&self) -> String {
        match self {
            Item::Tensor { name, .. } => name.clone(),
            Item::Packed(p) => tensor_names(p.role, p.layer)[0].clone(),
        }
    }

    /// Name, type, shape and bytes of each stored tensor.
    pub(super) fn stored(&self) -> Vec<(String, DType, Vec<usize>, u64)> {
        match self {
            Item::Tensor { name, dtype, shape, bytes } => {
                vec![(name.clone(), *dtype, shape.clone(), *bytes)]
            }
            Item::Packed(p) => {
                let [codes, scales] = tensor_names(p.role, p.layer);
                let s = p.shape;
                let groups = s.groups_per_row();
                vec![
                    (codes, DType::U8, vec![s.rows(), s.row_bytes()], s.code_bytes() as u64),
                    (scales, DType::BF16, vec![s.rows(), groups], 2 * s.scale_count() as u64),
                ]
            }
        }
    }
}

/// One safetensors file to be written.
#[derive(Clone, Debug)]
pub(super) struct Shard {
    pub(super) file: String,
    pub(super) items: Vec<Item>,
}

impl Shard {
    /// Length prefix and header. Data begins at a multiple of 64 bytes.
    pub(super) fn header(&self, plan: &str) -> Vec<u8> {
        let metadata = serde_json::json!({ "format": "pt", PLAN_KEY: plan });
        let mut header = format!(r#"{{"__metadata__":{metadata}"#);
        let mut offset = 0;
        for (name, dtype, shape, bytes) in self.items.iter().flat_map(Item::stored) {
            let entry = serde_json::json!({
                "dtype": dtype, "shape": shape, "data_offsets": [offset, offset + bytes],
            });
            header.push_str(&format!(",{}:{entry}", serde_json::json!(name)));
            offset += bytes;
        }
        header.push('}');
        let padded = (header.len() + 8).next_multiple_of(64) - 8;
        let mut bytes = (padded as u64).to_le_bytes().to_vec();
        bytes.extend_from_slice(header.as_bytes());
        bytes.resize(8 + padded, b' ');
        bytes
    }
}

/// A whole conversion.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) shards: Vec<Shard>,
    pub(super) total_bytes: u64,
}

/// Plans the conversion of a checkpoint.
pub(super) fn plan(
    checkpoint: &Checkpoint,
    descriptor: &Descriptor,
    recipe: &Recipe,
    max_shard_bytes: u64,
) -> Result<Plan, PlanError> {
    recipe.check(descriptor)?;
    let located = resolve(checkpoint, descriptor)?;
    let mut packings = Vec::new();
    for role in descriptor.roles.iter().filter(|r| recipe.roles.contains(&r.name)) {
        let source = role.tied_to.unwrap_or(role.name);
        let (rows, cols) = matrix(&role.shape);
        for l in located.iter().filter(|l| l.role == source) {
            let shape = recipe.shape(rows, cols).map_err(|error| QuantiseError::Weight {
                role: role.name,
                layer: l.layer,
                error,
            })?;
            let (role, experts) = (role.name, role.experts());
            packings.push(Packing { role, layer: l.layer, shape, experts, located: l.clone() });
        }
    }
    let dropped = match recipe.prefill {
        Prefill::Bf16 => BTreeSet::new(),
        Prefill::Packed => only_of(descriptor, recipe),
    };
    let tensors = checkpoint.tensors().filter(|(name, _)| !dropped.contains(*name));
    let mut items: Vec<Item> = tensors
        .map(|(name, entry)| Item::Tensor {
            name: name.to_owned(),
            dtype: entry.dtype,
            shape: entry.shape.clone(),
            bytes: entry.size_bytes as u64,
        })
        .collect();
    items.extend(packings.into_iter().map(|p| Item::Packed(Box::new(p))));
    Ok(split(items, max_shard_bytes))
}

/// Why a conversion cannot be planned.
#[derive(Debug, thiserror::Error)]
pub(super) enum PlanError {
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    #[error(transparent)]
    Quantise(#[from] QuantiseError),
}

/// Tensors of which every row belongs to a packed role.
fn only_of(descriptor: &Descriptor, recipe: &Recipe) -> BTreeSet<String> {
    let mut packed: BTreeMap<String, bool> = BTreeMap::new();
    for role in descriptor.roles.iter().filter(|r| r.tied_to.is_none()) {
        for (name, _) in role.instances().into_iter().flat_map(|layer| role.tensors(layer)) {
            *packed.entry(name).or_insert(true) &= recipe.roles.contains(&role.name);
        }
    }
    packed.into_iter().filter(|(_, all)| *all).map(|(name, _)| name).collect()
}

/// Cuts the items into files before the size is exceeded.
fn split(mut items: Vec<Item>, max_shard_bytes: u64) -> Plan {
    items.sort_by_key(Item::name);
    let total_bytes = items.iter().map(Item::bytes).sum();
    let mut shards: Vec<Vec<Item>> = vec![Vec::new()];
    let mut size = 0;
    for item in items {
        let bytes = item.bytes();
        if size > 0 && size + bytes > max_shard_bytes {
            shards.push(Vec::new());
            size = 0;
        }
        size += bytes;
        if let Some(last) = shards.last_mut() {
            last.push(item);
        }
    }
    let count = shards.len();
    let shards = shards.into_iter().enumerate().map(|(i, mut items)| {
        items.sort_by_key(|item| (item.order(), item.name()));
        let file = match count {
            1 => SINGLE.to_owned(),
            _ => format!("model-{:05}-of-{count:05}.safetensors", i + 1),
        };
        Shard { file, items }
    });
    Plan { shards: shards.collect(), total_bytes }
}

/// The digest that binds files and sidecar: of everything that decides what is written.
pub(super) fn plan_digest(
    source_files: &[(String, String)],
    recipe: &Recipe,
    plan: &Plan,
) -> Digest {
    let files = source_files.iter().map(|(file, sha256)| {
        Canonical::object([
            ("file", Canonical::from(file.as_str())),
            ("sha256", sha256.as_str().into()),
        ])
    });
    let shards = plan.shards.iter().map(|shard| {
        let tensors =
            shard.items.iter().flat_map(Item::stored).map(|(name, ..)| Canonical::from(name));
        Canonical::object([
            ("file", Canonical::from(shard.file.as_str())),
            ("tensors", Canonical::List(tensors.collect())),
        ])
    });
    let groups = plan.shards.iter().flat_map(|s| &s.items).filter_map(|item| match item {
        Item::Packed(p) => Some(Canonical::from(p.shape.group())),
        Item::Tensor { .. } => None,
    });
    Canonical::object([
        ("format", Canonical::from(crate::tensor::INT4_FORMAT)),
        ("format_version", crate::tensor::INT4_VERSION.into()),
        ("converter", Canonical::from(env!("CARGO_PKG_VERSION"))),
        ("prefill", recipe.prefill.to_string().into()),
        ("source", Canonical::List(files.collect())),
        ("groups", Canonical::List(groups.collect())),
        ("shards", Canonical::List(shards.collect())),
    ])
    .digest()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_of_any_length_are_padded_to_whole_lines() {
        // The longest is beyond what a formatter pads to, 65,535.
        for count in [0, 1, 7, 2000] {
            let item = |i: usize| Item::Tensor {
                name: format!("model.layers.{i}.weight"),
                dtype: DType::BF16,
                shape: vec![8, 8],
                bytes: 128,
            };
            let shard = Shard { file: SINGLE.to_owned(), items: (0..count).map(item).collect() };
            let bytes = shard.header("plan");
            let (length, header) = bytes.split_at(8);
            assert_eq!(u64::from_le_bytes(length.try_into().unwrap()), header.len() as u64);
            assert_eq!(bytes.len() % 64, 0);
            let header: serde_json::Value = serde_json::from_slice(header).unwrap();
            assert_eq!(header.as_object().unwrap().len(), count + 1);
        }
    }
}
