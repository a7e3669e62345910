//! Which files make up a checkpoint, and the index of a sharded one.

use super::error::quoted;
use super::file::{self, MappedFile, kind_of};
use super::json::{JsonError, Reader};
use super::{CheckpointError, Place, Rule};
use crate::units::Position;
use crate::units::mutant;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// The conventional name of an unsharded checkpoint.
pub(super) const SINGLE: &str = "model.safetensors";
/// The conventional name of the index of a sharded checkpoint.
pub(super) const INDEX: &str = "model.safetensors.index.json";
const INDEX_LIMIT_BYTES: u64 = 100_000_000;

/// The files of a checkpoint, and what was odd without being wrong.
#[derive(Debug)]
pub(super) struct Files {
    /// The file that errors about the whole checkpoint name.
    pub(super) main: PathBuf,
    pub(super) files: Vec<MappedFile>,
    pub(super) warnings: Vec<String>,
}

/// Opens the files of the checkpoint at `path`, a folder or one safetensors file.
pub(super) fn open(path: &Path) -> Result<Files, CheckpointError> {
    let metadata = std::fs::metadata(path).map_err(|e| file::unreadable(path, &e))?;
    if !metadata.is_dir() {
        let files = vec![file::open(path.to_owned())?];
        return Ok(Files { main: path.to_owned(), files, warnings: Vec::new() });
    }
    let (single, index) = (path.join(SINGLE), path.join(INDEX));
    let numbered = numbered_shards(path).map_err(|e| file::unreadable(path, &e))?;
    let layout = |found: String| CheckpointError::new(path, Rule::Layout, found);
    if index.exists() {
        return open_sharded(path, index, &numbered);
    }
    match (single.exists(), numbered.first()) {
        (true, Some(shard)) => Err(layout(format!("{SINGLE} beside the shard {shard}"))
            .help("remove the one that is out of date")),
        (true, None) => {
            let files = vec![file::open(single.clone())?];
            Ok(Files { main: single, files, warnings: Vec::new() })
        }
        (false, Some(shard)) => Err(layout(format!("the shard {shard} without {INDEX}"))),
        (false, None) => {
            Err(layout("neither".into()).help("name the folder that holds config.json and weights"))
        }
    }
}

fn open_sharded(
    folder: &Path,
    index_path: PathBuf,
    numbered: &[String],
) -> Result<Files, CheckpointError> {
    let index = read_index(&index_path)?;
    let names: BTreeSet<&str> = index.weight_map.values().map(String::as_str).collect();
    if folder.join(SINGLE).exists() && !names.contains(SINGLE) {
        let found = format!("both {SINGLE} and {INDEX}");
        return Err(CheckpointError::new(folder, Rule::Layout, found)
            .help("remove the one that is out of date"));
    }
    if let Some(stranger) = numbered.iter().find(|n| !names.contains(n.as_str())) {
        return Err(CheckpointError::new(&index_path, Rule::UnlistedShard, quoted(stranger))
            .help("it may be left over from another download: remove it, or fetch its index"));
    }
    if let Some((tensor, shard)) =
        index.weight_map.iter().find(|(_, shard)| !folder.join(shard).exists())
    {
        let found = format!("no file {}", quoted(shard));
        return Err(CheckpointError::new(&index_path, Rule::ShardMissing, found).tensor(tensor));
    }
    let files: Vec<MappedFile> =
        names.iter().map(|name| file::open(folder.join(name))).collect::<Result<_, _>>()?;
    check_placement(&index_path, &index, &files)?;
    let warnings = total_size_warning(&index_path, &index, &files);
    Ok(Files { main: index_path, files, warnings })
}

/// Requires that index and shards agree about where every tensor lies.
fn check_placement(
    index_path: &Path,
    index: &Index,
    files: &[MappedFile],
) -> Result<(), CheckpointError> {
    let by_name: BTreeMap<&str, &MappedFile> =
        files.iter().map(|f| (file_name(&f.path), f)).collect();
    for (tensor, shard) in &index.weight_map {
        if !by_name[shard.as_str()].header.tensors.contains_key(tensor) {
            let found = format!("it is not in {}", quoted(shard));
            return Err(CheckpointError::new(index_path, Rule::TensorMissing, found).tensor(tensor));
        }
    }
    for file in files {
        for tensor in file.header.tensors.keys() {
            let error = |rule, found: &str| {
                Err(CheckpointError::new(&file.path, rule, found).tensor(tensor))
            };
            match index.weight_map.get(tensor) {
                None => return error(Rule::UnlistedTensor, "a tensor that the index lacks"),
                Some(shard)
                    if shard != file_name(&file.path) && !mutant!("stray_copy_accepted") =>
                {
                    return error(
                        Rule::StrayCopy,
                        &format!("a copy of the one in {}", quoted(shard)),
                    );
                }
                Some(_) => {}
            }
        }
    }
    Ok(())
}

/// A wrong total is only reported: no byte is read by it, and published files exist whose writers
/// counted tied or converted tensors differently.
fn total_size_warning(index_path: &Path, index: &Index, files: &[MappedFile]) -> Vec<String> {
    let stored: usize =
        files.iter().flat_map(|f| f.header.tensors.values()).map(|e| e.size_bytes).sum();
    match index.total_size {
        Some(total) if total != stored as u64 => vec![format!(
            "{}: metadata.total_size says {total} bytes, the tensors have {stored}",
            index_path.display()
        )],
        _ => Vec::new(),
    }
}

#[derive(Debug, Default)]
struct Index {
    weight_map: BTreeMap<String, String>,
    total_size: Option<u64>,
}

fn read_index(path: &Path) -> Result<Index, CheckpointError> {
    let metadata = std::fs::metadata(path).map_err(|e| file::unreadable(path, &e))?;
    if !metadata.is_file() {
        return Err(CheckpointError::new(path, Rule::RegularFile, kind_of(&metadata)));
    }
    if metadata.len() > INDEX_LIMIT_BYTES {
        let found = format!("{} bytes", metadata.len());
        return Err(CheckpointError::new(path, Rule::IndexLimit, found));
    }
    let bytes = std::fs::read(path).map_err(|e| file::unreadable(path, &e))?;
    parse_index(path, &bytes)
}

fn parse_index(path: &Path, bytes: &[u8]) -> Result<Index, CheckpointError> {
    let text = std::str::from_utf8(bytes).map_err(|e| {
        CheckpointError::new(path, Rule::Utf8, "an invalid byte sequence")
            .at(Place::Byte(e.valid_up_to() as u64))
    })?;
    index_of(text).map_err(|error| CheckpointError {
        rule: error.rule,
        file: path.to_owned(),
        position: Some(line_column(text, error.offset)),
        tensor: error.tensor,
        expected: error.expected,
        found: error.found,
        help: None,
    })
}

fn index_of(text: &str) -> Result<Index, JsonError> {
    let mut index = Index::default();
    let mut mapped = false;
    let mut reader = Reader::new(text);
    reader.object(|reader, key, key_at| match &*key {
        "weight_map" => {
            mapped = true;
            read_weight_map(reader, &mut index.weight_map)
        }
        "metadata" => read_metadata(reader, &mut index.total_size),
        other => {
            let found = format!("the field {}", quoted(other));
            Err(reader.error_at(key_at, Rule::IndexFields, found))
        }
    })?;
    reader.end()?;
    if mapped && !index.weight_map.is_empty() {
        return Ok(index);
    }
    let found = if mapped { "an empty weight_map" } else { "no weight_map" };
    Err(reader.error_at(0, Rule::IndexFields, found))
}

fn read_weight_map(
    reader: &mut Reader<'_>,
    map: &mut BTreeMap<String, String>,
) -> Result<(), JsonError> {
    reader.object(|reader, tensor, _| {
        let at = reader.offset();
        let shard = reader.string("a shard's file name").map_err(|e| e.in_tensor(&tensor))?;
        if !is_plain_file_name(&shard) {
            let error = reader.error_at(at, Rule::ShardName, quoted(&shard));
            return Err(error.in_tensor(&tensor));
        }
        map.insert(tensor.into_owned(), shard.into_owned());
        Ok(())
    })
}

/// Only the total is read; other writers' keys are skipped.
fn read_metadata(reader: &mut Reader<'_>, total: &mut Option<u64>) -> Result<(), JsonError> {
    reader.object(|reader, key, _| {
        if key != "total_size" {
            return reader.skip();
        }
        *total = Some(reader.whole().map_err(|e| JsonError { rule: Rule::TotalSize, ..e })?);
        Ok(())
    })
}

/// A name that cannot leave the folder on any platform.
fn is_plain_file_name(name: &str) -> bool {
    name.len() > ".safetensors".len()
        && name.len() <= 255
        && name.ends_with(".safetensors")
        && !name.starts_with('.')
        && !name.chars().any(|c| matches!(c, '/' | '\\' | ':') || c.is_control())
}

/// Files named as Hugging Face writers name shards, sorted.
pub(super) fn numbered_shards(folder: &Path) -> std::io::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let name = entry?.file_name();
        let Some(name) = name.to_str() else { continue };
        let numbers = name.strip_prefix("model-").and_then(|n| n.strip_suffix(".safetensors"));
        let is_number = |s: &str| !s.is_empty() && s.bytes().all(|b| b.is_ascii_digit());
        if numbers
            .and_then(|n| n.split_once("-of-"))
            .is_some_and(|(i, n)| is_number(i) && is_number(n))
        {
            names.push(name.to_owned());
        }
    }
    names.sort();
    Ok(names)
}

fn file_name(path: &Path) -> &str {
    path.file_name().and_then(|n| n.to_str()).unwrap_or_default()
}

fn line_column(text: &str, offset: usize) -> Place {
    let before = &text[..offset];
    let line = before.matches('\n').count() + 1;
    let column = before.chars().rev().take_while(|c| *c != '\n').count() + 1;
    Place::Text(Position { line, column })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shard_names_stay_in_the_folder() {
        assert!(is_plain_file_name("model-00001-of-00002.safetensors"));
        for name in [
            "../model.safetensors",
            "/etc/x.safetensors",
            "a/b.safetensors",
            "a\\b.safetensors",
            "c:x.safetensors",
            ".safetensors",
            "..safetensors",
            "model.bin",
            "a\0.safetensors",
            "",
        ] {
            assert!(!is_plain_file_name(name), "{name:?}");
        }
    }

    #[test]
    fn index_errors_have_line_and_column() {
        let text = "{\n \"weight_map\": {\n  \"é\": 3\n }\n}";
        let error = parse_index(Path::new("i"), text.as_bytes()).unwrap_err();
        assert_eq!(error.position, Some(Place::Text(Position { line: 3, column: 8 })));
        assert_eq!(error.tensor.as_deref(), Some("é"));
    }
}
