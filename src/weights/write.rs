//! Writing safetensors folders: synthetic or loaded weights, and another layout of a checkpoint.
//!
//! Nothing is ever seen half-written under its final name: shards are written beside their final
//! names, flushed to disk and renamed when all are complete, the index last.

use super::Checkpoint;
use super::resolve::pattern_ranges;
use super::set::WeightSet;
use super::shards::{INDEX, SINGLE, numbered_shards};
use crate::descriptor::{Descriptor, Role, RoleName, RowPattern};
use crate::tensor::{DType, Storage, Weight};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::path::{Path, PathBuf};

/// How to write.
#[derive(Clone, Copy, Debug)]
pub struct WriteOptions {
    /// Largest size of a shard's data; a single tensor may exceed it.
    pub max_shard_bytes: u64,
}

impl Default for WriteOptions {
    fn default() -> Self {
        WriteOptions { max_shard_bytes: 5_000_000_000 }
    }
}

/// Why weights could not be written.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    #[error("{}: {source}", path.display())]
    Io { path: PathBuf, source: std::io::Error },
    #[error("{}: already holds a checkpoint ({file}); choose another folder", folder.display())]
    Exists { folder: PathBuf, file: String },
    #[error("tensor {tensor:?} cannot be laid out: {problem}")]
    Layout { tensor: String, problem: String },
}

impl WriteError {
    /// Whether reading or writing failed, as opposed to the request being refused.
    pub fn is_io(&self) -> bool {
        matches!(self, WriteError::Io { .. })
    }
}

/// A tensor to be written: its bytes are the chunks, one after the other.
#[derive(Clone, Debug)]
struct Stored<'a> {
    name: String,
    dtype: DType,
    shape: Vec<usize>,
    chunks: Vec<&'a [u8]>,
}

impl Stored<'_> {
    fn size_bytes(&self) -> u64 {
        self.chunks.iter().map(|c| c.len() as u64).sum()
    }
}

/// Writes `weights` under the tensor names of `descriptor`, so that reading them back with it gives
/// the same bits. F16 sources have become F32.
///
/// # Errors
/// The folder holds a checkpoint already, writing fails, or the descriptor's views do not tile
/// their tensors. The folder is then as it was.
pub fn write_weights(
    folder: &Path,
    descriptor: &Descriptor,
    weights: &WeightSet,
    options: &WriteOptions,
) -> Result<Vec<PathBuf>, WriteError> {
    let mut tensors = BTreeMap::new();
    for role in descriptor.roles.iter().filter(|r| r.tied_to.is_none()) {
        for layer in role.instances() {
            let weight = weights.get(role.name, layer).ok_or_else(|| WriteError::Layout {
                tensor: role.name.to_string(),
                problem: "the set has no such weight".into(),
            })?;
            scatter(role, layer, weight, &mut tensors)?;
        }
    }
    let stored =
        tensors.into_iter().map(|(name, rows)| rows.finish(name)).collect::<Result<_, _>>()?;
    write(folder, stored, options)
}

impl Checkpoint {
    /// Writes the same tensors under other names, in shards of another size: the same weights in
    /// another layout.
    ///
    /// # Errors
    /// The folder holds a checkpoint already, or writing fails. The folder is then as it was.
    pub fn rewrite(
        &self,
        folder: &Path,
        rename: impl Fn(&str) -> String,
        options: &WriteOptions,
    ) -> Result<Vec<PathBuf>, WriteError> {
        let stored = self.tensors().map(|(name, entry)| Stored {
            name: rename(name),
            dtype: entry.dtype,
            shape: entry.shape.clone(),
            chunks: self.bytes(name).into_iter().collect(),
        });
        write(folder, stored.collect(), options)
    }
}

/// Rows of a tensor that is being put together.
struct Rows<'a> {
    dtype: DType,
    inner: Vec<usize>,
    /// Experts that share the tensor: an axis before the rows.
    experts: Option<usize>,
    /// First row, number of rows, their bytes.
    chunks: Vec<(usize, usize, &'a [u8])>,
}

fn scatter<'a>(
    role: &Role,
    layer: Option<usize>,
    weight: &'a Weight,
    tensors: &mut BTreeMap<String, Rows<'a>>,
) -> Result<(), WriteError> {
    let dtype = match weight.storage {
        Storage::Bf16(_) => DType::BF16,
        Storage::F32(_) => DType::F32,
        Storage::Int4(_) => {
            return Err(WriteError::Layout {
                tensor: role.name.to_string(),
                problem: "packed weights are written by `assay model quantize`".into(),
            });
        }
    };
    let mut rest = weight.as_bytes();
    let total_rows = match role.shape.as_slice() {
        [one] => *one,
        _ => role.matrix().0,
    };
    let row_bytes = rest.len().checked_div(total_rows).unwrap_or(0);
    let tensors_of_role = role.tensors(layer);
    // Whole tensors share the rows evenly: one for each expert.
    let rows_of_each = total_rows / tensors_of_role.len().max(1);
    let one_each = role.experts() == Some(tensors_of_role.len());
    for (name, rows) in tensors_of_role {
        let alone = role.views.len() == 1;
        let layout =
            |problem: &str| WriteError::Layout { tensor: name.clone(), problem: problem.into() };
        let ranges = match rows {
            RowPattern::All if alone => std::iter::once(0..rows_of_each).collect(),
            RowPattern::All => return Err(layout("one of several views takes all rows")),
            blocks => {
                pattern_ranges(blocks, usize::MAX).ok_or_else(|| layout("overlapping blocks"))?
            }
        };
        let target = tensors.entry(name.clone()).or_insert_with(|| Rows {
            dtype,
            inner: inner_extents(role),
            experts: role.experts().filter(|_| !one_each),
            chunks: Vec::new(),
        });
        if (target.dtype, &target.inner) != (dtype, &inner_extents(role)) {
            return Err(layout("its roles differ in element type or row shape"));
        }
        for range in ranges {
            let (chunk, tail) = rest
                .split_at_checked(range.len() * row_bytes)
                .ok_or_else(|| layout("its views have more rows than the weight"))?;
            target.chunks.push((range.start, range.len(), chunk));
            rest = tail;
        }
    }
    Ok(())
}

/// Extents behind the first, as Hugging Face files spell them: a depthwise convolution has one
/// input channel per group.
fn inner_extents(role: &Role) -> Vec<usize> {
    let mut inner: Vec<usize> = match role.shape.as_slice() {
        [_] | [] => Vec::new(),
        [.., cols] => vec![*cols],
    };
    if role.name == RoleName::GdnConv {
        inner.insert(0, 1);
    }
    inner
}

impl<'a> Rows<'a> {
    fn finish(mut self, name: String) -> Result<Stored<'a>, WriteError> {
        self.chunks.sort_by_key(|(first, _, _)| *first);
        let mut rows = 0;
        for (first, count, _) in &self.chunks {
            if *first != rows {
                let problem = format!("row {rows} is not used exactly once");
                return Err(WriteError::Layout { tensor: name, problem });
            }
            rows += count;
        }
        let outer = match self.experts.filter(|experts| rows.is_multiple_of(*experts)) {
            Some(experts) => vec![experts, rows / experts],
            None => vec![rows],
        };
        let shape = outer.into_iter().chain(self.inner).collect();
        let chunks = self.chunks.into_iter().map(|(_, _, bytes)| bytes).collect();
        Ok(Stored { name, dtype: self.dtype, shape, chunks })
    }
}

fn write(
    folder: &Path,
    tensors: Vec<Stored<'_>>,
    options: &WriteOptions,
) -> Result<Vec<PathBuf>, WriteError> {
    let io = |path: &Path| {
        let path = path.to_owned();
        move |source| WriteError::Io { path, source }
    };
    std::fs::create_dir_all(folder).map_err(io(folder))?;
    let mut taken = numbered_shards(folder).map_err(io(folder))?;
    taken
        .extend([SINGLE, INDEX].map(str::to_owned).into_iter().filter(|f| folder.join(f).exists()));
    if let Some(file) = taken.pop() {
        return Err(WriteError::Exists { folder: folder.to_owned(), file });
    }
    let shards = split(tensors, options.max_shard_bytes);
    let count = shards.len();
    let mut pending = Pending::default();
    let mut weight_map = BTreeMap::new();
    let mut total_size = 0;
    for (i, shard) in shards.into_iter().enumerate() {
        let name = match count {
            1 => SINGLE.to_owned(),
            _ => format!("model-{:05}-of-{count:05}.safetensors", i + 1),
        };
        for tensor in &shard {
            total_size += tensor.size_bytes();
            weight_map.insert(tensor.name.clone(), name.clone());
        }
        let temporary = pending.add(folder, &name);
        write_shard(&temporary, shard).map_err(io(&temporary))?;
    }
    if count > 1 {
        let index = serde_json::json!({
            "metadata": { "total_size": total_size },
            "weight_map": weight_map,
        });
        let temporary = pending.add(folder, INDEX);
        let text = format!("{index:#}\n");
        std::fs::write(&temporary, text).map_err(io(&temporary))?;
    }
    pending.rename()
}

/// Files written but not yet under their final names; removed when dropped.
#[derive(Default)]
struct Pending(Vec<(PathBuf, PathBuf)>);

impl Pending {
    fn add(&mut self, folder: &Path, name: &str) -> PathBuf {
        let temporary = folder.join(format!(".{name}.{}.partial", std::process::id()));
        self.0.push((temporary.clone(), folder.join(name)));
        temporary
    }

    fn rename(mut self) -> Result<Vec<PathBuf>, WriteError> {
        let mut written: Vec<PathBuf> = Vec::new();
        for (temporary, path) in &self.0 {
            if let Err(source) = std::fs::rename(temporary, path) {
                written.iter().for_each(remove);
                return Err(WriteError::Io { path: path.clone(), source });
            }
            written.push(path.clone());
        }
        self.0.clear();
        Ok(written)
    }
}

/// Best effort: an error is already on its way to the user.
fn remove(path: &PathBuf) {
    let _ = std::fs::remove_file(path);
}

impl Drop for Pending {
    fn drop(&mut self) {
        self.0.iter().for_each(|(temporary, _)| remove(temporary));
    }
}

/// Tensors by name, cut into shards before the size is exceeded.
fn split(mut tensors: Vec<Stored<'_>>, max_bytes: u64) -> Vec<Vec<Stored<'_>>> {
    tensors.sort_by(|a, b| a.name.cmp(&b.name));
    let mut shards = vec![Vec::new()];
    let mut size = 0u64;
    for tensor in tensors {
        let bytes = tensor.size_bytes();
        if size > 0 && size + bytes > max_bytes {
            shards.push(Vec::new());
            size = 0;
        }
        size += bytes;
        shards.last_mut().expect("there is a shard").push(tensor);
    }
    shards
}

fn write_shard(path: &Path, mut tensors: Vec<Stored<'_>>) -> std::io::Result<()> {
    // Largest elements first keeps every tensor aligned without holes.
    tensors.sort_by(|a, b| {
        b.dtype.size_bytes().cmp(&a.dtype.size_bytes()).then_with(|| a.name.cmp(&b.name))
    });
    let mut header = String::from(r#"{"__metadata__":{"format":"pt"}"#);
    let mut offset = 0;
    for tensor in &tensors {
        let end = offset + tensor.size_bytes();
        let entry = serde_json::json!({
            "dtype": tensor.dtype, "shape": tensor.shape, "data_offsets": [offset, end],
        });
        header.push_str(&format!(",{}:{entry}", serde_json::json!(tensor.name)));
        offset = end;
    }
    header.push('}');
    // Data begins at a multiple of 8 bytes, so that mapped elements are aligned.
    header.push_str(&" ".repeat(header.len().next_multiple_of(8) - header.len()));
    let mut out = BufWriter::with_capacity(1 << 20, File::create(path)?);
    out.write_all(&(header.len() as u64).to_le_bytes())?;
    out.write_all(header.as_bytes())?;
    for chunk in tensors.iter().flat_map(|t| &t.chunks) {
        out.write_all(chunk)?;
    }
    out.into_inner()?.sync_all()
}
