//! Other files of the same weights.

use crate::descriptor::{Descriptor, Role, RoleName, RowPattern, Scope, View};
use crate::harness::kinds::refusal::Change;
use crate::harness::spec::NonEmpty;
use crate::weights::{LoadOptions, Model, WriteOptions, write_weights};
use schemars::JsonSchema;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// How the files differ from the model's own.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Layout {
    /// Name of the trial.
    pub(super) case: String,
    /// Writes the tensors again, under other names or in shards.
    #[serde(default)]
    rewrite: Option<Rewrite>,
    /// Writes several weights of a layer into one tensor, which a descriptor's views take apart.
    #[serde(default)]
    fuse: Option<Fuse>,
    /// Writes weights into tensors of their own, role by role: one for each expert where `{expert}` is in
    /// the name. The adapter has to find them.
    #[serde(default)]
    separate: Option<BTreeMap<String, String>>,
    /// Steps on the files, after that.
    #[serde(default)]
    change: Option<NonEmpty<Change>>,
}

#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Rewrite {
    /// Largest data of a shard; left out: one file.
    #[serde(default)]
    shard_bytes: Option<u64>,
    /// Another beginning of tensor names.
    #[serde(default)]
    prefix: Option<Prefix>,
}

#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Prefix {
    from: String,
    to: String,
}

/// Weights with rows of the same length, one under the other or interleaved.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Fuse {
    /// Roles by name, in the order of their rows.
    roles: NonEmpty<String>,
    /// Name of the tensor, `{layer}` in it.
    tensor: String,
    /// Rows of the first role before rows of the next; left out: all of them.
    #[serde(default)]
    block_rows: Option<usize>,
}

impl Layout {
    /// Writes the model's files into the new folder `folder`.
    ///
    /// # Errors
    /// A sentence: the layout does not fit the model.
    pub(super) fn write(&self, valid: &Path, folder: &Path) -> Result<Model, String> {
        fs::create_dir_all(folder).map_err(|e| e.to_string())?;
        let rewritten = self.rewrite.is_some() || self.fuse.is_some() || self.separate.is_some();
        copy(valid, folder, !rewritten)?;
        let source = Model::open(valid).map_err(|e| e.to_string())?;
        if let Some(rewrite) = &self.rewrite {
            let options = WriteOptions {
                max_shard_bytes: rewrite
                    .shard_bytes
                    .unwrap_or(WriteOptions::default().max_shard_bytes),
            };
            let rename = |name: &str| match &rewrite.prefix {
                Some(Prefix { from, to }) => match name.strip_prefix(from.as_str()) {
                    Some(rest) => format!("{to}{rest}"),
                    None => name.to_owned(),
                },
                None => name.to_owned(),
            };
            source.checkpoint.rewrite(folder, rename, &options).map_err(|e| e.to_string())?;
        }
        let of = &source.descriptor;
        let fused = self.fuse.as_ref().map(|fuse| fuse.descriptor(of)).transpose()?;
        let separated = self.separate.as_ref().map(|tensors| separate(tensors, of)).transpose()?;
        if let Some(written) = fused.as_ref().or(separated.as_ref()) {
            let weights = source.load(&LoadOptions::default()).map_err(|e| e.to_string())?;
            write_weights(folder, written, &weights, &WriteOptions::default())
                .map_err(|e| e.to_string())?;
        }
        self.change.iter().flat_map(|c| c.iter()).try_for_each(|change| change.apply(folder))?;
        match fused {
            Some(descriptor) => Model::with_descriptor(folder, descriptor),
            None => Model::open(folder),
        }
        .map_err(|e| e.to_string())
    }
}

fn copy(from: &Path, to: &Path, weights: bool) -> Result<(), String> {
    for entry in fs::read_dir(from).map_err(|e| format!("{}: {e}", from.display()))? {
        let path: PathBuf = entry.map_err(|e| e.to_string())?.path();
        let name = path.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
        let wanted = ["config.json", "generation_config.json"].contains(&name.as_str())
            || (weights && name.starts_with("model"));
        if wanted {
            let bytes = fs::read(&path).map_err(|e| format!("{}: {e}", path.display()))?;
            fs::write(to.join(name), bytes).map_err(|e| e.to_string())?;
        }
    }
    Ok(())
}

impl Fuse {
    /// The descriptor with views into the fused tensor.
    fn descriptor(&self, of: &Descriptor) -> Result<Descriptor, String> {
        let mut descriptor = of.clone();
        let mut scope: Option<Scope> = None;
        let rows: Vec<usize> = self
            .roles
            .iter()
            .map(|name| {
                let role = role(&mut descriptor, name)?;
                if scope.get_or_insert_with(|| role.scope.clone()) != &role.scope {
                    return Err(format!("`{name}` is not in the same layers as the first role"));
                }
                role.shape.first().copied().ok_or(format!("`{name}` has no rows"))
            })
            .collect::<Result<_, String>>()?;
        let unit = rows[0];
        let block = self.block_rows.unwrap_or(unit);
        if block == 0 || !unit.is_multiple_of(block) {
            return Err(format!("blocks of {block} rows do not divide {unit}"));
        }
        let count = unit / block;
        let share = |rows: usize| match rows.is_multiple_of(count) {
            true => Ok(rows / count),
            false => Err(format!("{rows} rows do not divide into {count} blocks")),
        };
        let blocks: Vec<usize> = rows.iter().map(|r| share(*r)).collect::<Result<_, _>>()?;
        let stride: usize = blocks.iter().sum();
        let mut start = 0;
        for (name, block) in self.roles.iter().zip(blocks) {
            let rows = RowPattern::Blocks { start, block, stride, count };
            role(&mut descriptor, name)?.views = vec![View { tensor: self.tensor.clone(), rows }];
            start += block;
        }
        descriptor.validate().map_err(|e| e.to_string())?;
        Ok(descriptor)
    }
}

/// The descriptor with these roles in whole tensors of these names.
fn separate(tensors: &BTreeMap<String, String>, of: &Descriptor) -> Result<Descriptor, String> {
    let mut descriptor = of.clone();
    for (name, tensor) in tensors {
        let view = View { tensor: tensor.clone(), rows: RowPattern::All };
        role(&mut descriptor, name)?.views = vec![view];
    }
    descriptor.validate().map_err(|e| e.to_string())?;
    Ok(descriptor)
}

fn role<'d>(descriptor: &'d mut Descriptor, name: &str) -> Result<&'d mut Role, String> {
    let found = descriptor.roles.iter_mut().find(|r| RoleName::as_str(r.name) == name);
    found.ok_or_else(|| format!("the model has no role `{name}`"))
}
