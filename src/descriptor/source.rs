//! Reads the descriptor of a checkpoint folder.

use super::family::{ConfigFiles, TensorIndex, derive};
use super::{Descriptor, DescriptorError, Refusal};
use crate::units::{JsonValue, parse_json};
use std::fs::File;
use std::io::{ErrorKind, Read as _};
use std::path::Path;

/// Largest config accepted.
const CONFIG_LIMIT_BYTES: u64 = 4 << 20;
/// Largest list of tensors accepted.
const INDEX_LIMIT_BYTES: u64 = 100 << 20;

impl Descriptor {
    /// Derives the descriptor from the files an adapter reads; a pure function.
    ///
    /// # Errors
    /// Everything in the files that is contradictory, unknown or not implemented, by name.
    pub fn derive(files: &ConfigFiles<'_>) -> Result<Descriptor, DescriptorError> {
        Ok(derive(files)?)
    }
}

/// Derives the descriptor of a Hugging Face folder from its `config.json`,
/// `generation_config.json` (if there) and the names of its tensors (if there are weights).
///
/// # Errors
/// A file that cannot be read, and everything [`Descriptor::derive`] refuses.
pub fn from_dir(dir: &Path) -> Result<Descriptor, DescriptorError> {
    from_dir_with(dir, tensor_index(dir)?.as_ref())
}

/// As [`from_dir`], with tensor names that the caller has read (and checked) already.
///
/// # Errors
/// As [`from_dir`].
pub fn from_dir_with(
    dir: &Path,
    tensors: Option<&TensorIndex>,
) -> Result<Descriptor, DescriptorError> {
    let config_path = dir.join("config.json");
    let config = read_limited(&config_path, CONFIG_LIMIT_BYTES)?;
    let generation_path = dir.join("generation_config.json");
    let generation = if_found(read_limited(&generation_path, CONFIG_LIMIT_BYTES))?;
    let (config_name, generation_name) =
        (config_path.display().to_string(), generation_path.display().to_string());
    Descriptor::derive(&ConfigFiles {
        config: (&config_name, &config),
        generation_config: generation.as_deref().map(|bytes| (generation_name.as_str(), bytes)),
        tensors,
    })
}

/// The names of the tensors of a checkpoint folder, or `None` if it has no weights: those of
/// `model.safetensors`, else those that `model.safetensors.index.json` lists. Only names are read;
/// the checkpoint reader checks the files themselves.
///
/// # Errors
/// A file that cannot be read or is no list of tensors.
pub fn tensor_index(dir: &Path) -> Result<Option<TensorIndex>, DescriptorError> {
    if let Some(index) = packed_index(dir)? {
        return Ok(Some(index));
    }
    let single = dir.join("model.safetensors");
    if let Some(header) = if_found(read_header(&single))? {
        let file = single.display().to_string();
        let mut names = keys(&file, &header, None)?;
        names.retain(|name| name != "__metadata__");
        return Ok(Some(TensorIndex { file, names: names.into_iter().collect() }));
    }
    let sharded = dir.join("model.safetensors.index.json");
    let Some(index) = if_found(read_limited(&sharded, INDEX_LIMIT_BYTES))? else {
        return Ok(None);
    };
    let file = sharded.display().to_string();
    let names = keys(&file, &index, Some("weight_map"))?.into_iter().collect();
    Ok(Some(TensorIndex { file, names }))
}

/// The names that a model had before some of its weights were packed, from the
/// `weights.manifest.json` of a folder of packed weights.
fn packed_index(dir: &Path) -> Result<Option<TensorIndex>, DescriptorError> {
    let path = dir.join("weights.manifest.json");
    let Some(text) = if_found(read_limited(&path, INDEX_LIMIT_BYTES))? else { return Ok(None) };
    let file = path.display().to_string();
    let node = parse_json(&text).map_err(|e| Refusal::of_syntax(&file, e))?;
    let tensors = node.get("source").and_then(|source| source.node.get("tensors"));
    let Some(JsonValue::List(tensors)) = tensors.map(|m| &m.node.value) else {
        return Err(Refusal::of_file(&file, "expected a list `source.tensors`").into());
    };
    let names = tensors.iter().filter_map(|name| name.as_str().map(str::to_owned)).collect();
    Ok(Some(TensorIndex { file, names }))
}

/// The keys of the outermost object, or of the object under `inner`.
fn keys(file: &str, bytes: &[u8], inner: Option<&str>) -> Result<Vec<String>, DescriptorError> {
    let node = parse_json(bytes).map_err(|e| Refusal::of_syntax(file, e))?;
    let node = match inner {
        None => Some(&node),
        Some(key) => node.get(key).map(|m| &m.node),
    };
    match node.map(|n| &n.value) {
        Some(JsonValue::Object(members)) => Ok(members.iter().map(|m| m.key.clone()).collect()),
        _ => {
            let what = inner.map_or("an object".into(), |key| format!("an object `{key}`"));
            Err(Refusal::of_file(file, format!("expected {what} of tensors")).into())
        }
    }
}

/// The JSON header of a safetensors file.
fn read_header(path: &Path) -> Result<Vec<u8>, DescriptorError> {
    let fail = |e| DescriptorError::io(path, e);
    let mut file = File::open(path).map_err(fail)?;
    let size_bytes = file.metadata().map_err(fail)?.len();
    let refuse = |problem| Refusal::of_file(&path.display().to_string(), problem);
    let mut length = [0; 8];
    file.read_exact(&mut length)
        .map_err(|_| refuse(format!("no safetensors file: {size_bytes} bytes long")))?;
    let length = u64::from_le_bytes(length);
    if length > INDEX_LIMIT_BYTES || length > size_bytes - 8 {
        let problem = format!(
            "no safetensors file: a header of {length} bytes in a file of {size_bytes} bytes"
        );
        return Err(refuse(problem).into());
    }
    let mut header = Vec::new();
    file.take(length).read_to_end(&mut header).map_err(fail)?;
    Ok(header)
}

pub(super) fn read_limited(path: &Path, limit_bytes: u64) -> Result<Vec<u8>, DescriptorError> {
    let fail = |e| DescriptorError::io(path, e);
    let mut bytes = Vec::new();
    File::open(path).and_then(|f| f.take(limit_bytes + 1).read_to_end(&mut bytes)).map_err(fail)?;
    if bytes.len() as u64 > limit_bytes {
        let problem = format!("expected at most {limit_bytes} bytes, found more");
        return Err(Refusal::of_file(&path.display().to_string(), problem).into());
    }
    Ok(bytes)
}

fn if_found<T>(result: Result<T, DescriptorError>) -> Result<Option<T>, DescriptorError> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(DescriptorError::Io { source, .. }) if source.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}
