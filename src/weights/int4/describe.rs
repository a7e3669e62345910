//! The sidecar of a finished conversion.

use super::Recipe;
use super::convert::{ConvertError, Journal};
use super::plan::Plan;
use super::sidecar::*;
use crate::descriptor::{Descriptor, RoleName};
use crate::tensor::{DType, INT4_FORMAT, INT4_VERSION};
use crate::weights::Checkpoint;
use crate::weights::resolve::{label, matrix};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Describes every role and layer, quantised or retained.
pub(super) fn sidecar(
    descriptor: &Descriptor,
    checkpoint: &Checkpoint,
    recipe: &Recipe,
    plan: String,
    source: SourceRecord,
    planned: &Plan,
    journal: &Journal,
) -> Result<Sidecar, ConvertError> {
    let mut packed: BTreeMap<_, PackedRecord> = BTreeMap::new();
    for entry in journal.done.iter().flat_map(|done| &done.packed) {
        packed.insert((entry.role, entry.layer), entry.packed.clone());
    }
    let mut weights = Vec::new();
    for role in &descriptor.roles {
        let (rows, cols) = matrix(&role.shape);
        for layer in role.instances() {
            let packed = packed.remove(&(role.name, layer));
            if packed.is_none() && role.tied_to.is_some() {
                continue;
            }
            let owner = role.tied_to.unwrap_or(role.name);
            weights.push(WeightRecord {
                role: role.name,
                layer,
                treatment: match packed {
                    Some(_) => Treatment::Quantised,
                    None => Treatment::Retained,
                },
                shape: [rows, cols],
                experts: role.experts(),
                source_dtype: dtype_of(descriptor, checkpoint, owner, layer),
                packed,
            });
        }
    }
    if let Some(((role, layer), _)) = packed.into_iter().next() {
        let problem = format!("{} was packed and is no weight of the model", label(role, layer));
        return Err(ConvertError::Unfinished { folder: PathBuf::new(), problem });
    }
    // In file order, whatever the order in which a resumed conversion wrote them.
    let files = planned.shards.iter().filter_map(|shard| {
        let done = journal.done.iter().find(|d| d.file.file == shard.file);
        done.map(|d| d.file.clone())
    });
    let mut sidecar = Sidecar {
        manifest_version: SIDECAR_VERSION,
        format: INT4_FORMAT.to_owned(),
        format_version: INT4_VERSION,
        converter: Converter { name: "assay".into(), version: env!("CARGO_PKG_VERSION").into() },
        plan,
        prefill: recipe.prefill,
        source,
        weights,
        files: files.collect(),
        digest: String::new(),
    };
    sidecar.digest = sidecar.derive_digest().map(|d| d.to_string()).unwrap_or_default();
    Ok(sidecar)
}

fn dtype_of(
    descriptor: &Descriptor,
    checkpoint: &Checkpoint,
    role: RoleName,
    layer: Option<usize>,
) -> DType {
    let role = descriptor.roles.iter().find(|r| r.name == role);
    let first = role.and_then(|role| role.tensors(layer).into_iter().next());
    first.and_then(|(name, _)| checkpoint.tensor(&name)).map_or(DType::BF16, |entry| entry.dtype)
}
