//! Recipes: how a valid model folder is turned into one that must be refused.

use super::tensors;
use schemars::JsonSchema;
use serde::Deserialize;
use std::fs;
use std::path::{Path, PathBuf};

/// One step, applied to a private copy of the model's files.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub(in crate::harness::kinds) enum Change {
    /// Overwrites bytes from offset `at`.
    SetBytes {
        #[serde(default = "main_file")]
        file: String,
        at: usize,
        /// Hexadecimal digits, two a byte.
        hex: String,
    },
    /// Keeps the first bytes of a file and drops the rest.
    Truncate {
        #[serde(default = "main_file")]
        file: String,
        keep_bytes: usize,
    },
    /// Adds bytes at the end of a file.
    Append {
        #[serde(default = "main_file")]
        file: String,
        /// Hexadecimal digits, two a byte.
        hex: String,
    },
    /// Replaces one place in a safetensors header; the length prefix follows.
    Header {
        #[serde(default = "main_file")]
        file: String,
        find: String,
        with: String,
    },
    /// Replaces one place in a text file.
    Text { file: String, find: String, with: String },
    /// Writes a text file.
    Write { file: String, text: String },
    /// Writes a safetensors file with this header and so many zero bytes of data.
    Safetensors {
        #[serde(default = "main_file")]
        file: String,
        header: String,
        data_bytes: usize,
    },
    /// Adds a tensor to a safetensors file, or gives one another type and shape. Its elements are a
    /// fixed pattern.
    Tensor {
        #[serde(default = "main_file")]
        file: String,
        name: String,
        dtype: String,
        shape: Vec<usize>,
    },
    /// Adds a copy of a tensor under another name.
    CopyTensor {
        #[serde(default = "main_file")]
        file: String,
        from: String,
        to: String,
    },
    /// Removes a tensor from a safetensors file.
    DropTensor {
        #[serde(default = "main_file")]
        file: String,
        name: String,
    },
    /// Copies a file.
    Copy { from: String, to: String },
    /// Removes a file.
    Remove { file: String },
    /// Puts an empty folder in the place of a file.
    Folder { file: String },
}

fn main_file() -> String {
    "model.safetensors".to_owned()
}

impl Change {
    /// Applies the step in `folder`.
    ///
    /// # Errors
    /// A recipe that does not fit its model, in words: a place that is not there exactly once, an
    /// offset past the end, input/output errors.
    pub(in crate::harness::kinds) fn apply(&self, folder: &Path) -> Result<(), String> {
        let at = |file: &str| -> Result<PathBuf, String> {
            let plain = !file.is_empty() && !file.contains(['/', '\\']) && !file.starts_with('.');
            plain.then(|| folder.join(file)).ok_or(format!("`{file}` is no plain file name"))
        };
        match self {
            Change::SetBytes { file, at: offset, hex } => edit(&at(file)?, |bytes| {
                let new = unhex(hex)?;
                let end = offset.checked_add(new.len()).filter(|end| *end <= bytes.len());
                let end = end.ok_or(format!("byte {offset} lies behind the end"))?;
                bytes[*offset..end].copy_from_slice(&new);
                Ok(())
            }),
            Change::Truncate { file, keep_bytes } => edit(&at(file)?, |bytes| {
                if *keep_bytes >= bytes.len() {
                    return Err(format!("the file has only {} bytes", bytes.len()));
                }
                bytes.truncate(*keep_bytes);
                Ok(())
            }),
            Change::Append { file, hex } => edit(&at(file)?, |bytes| {
                bytes.extend(unhex(hex)?);
                Ok(())
            }),
            Change::Header { file, find, with } => edit(&at(file)?, |bytes| {
                let (header, data) = split_header(bytes)?;
                let header = replace_once(header, find, with)?;
                *bytes = join(&header, data);
                Ok(())
            }),
            Change::Text { file, find, with } => edit(&at(file)?, |bytes| {
                let text = std::str::from_utf8(bytes).map_err(|e| e.to_string())?;
                *bytes = replace_once(text, find, with)?.into_bytes();
                Ok(())
            }),
            Change::Write { file, text } => put(&at(file)?, text.as_bytes()),
            Change::Safetensors { file, header, data_bytes } => {
                put(&at(file)?, &join(header, &vec![0; *data_bytes]))
            }
            Change::Tensor { file, name, dtype, shape } => {
                edit(&at(file)?, |bytes| tensors::set(bytes, name, dtype, shape))
            }
            Change::CopyTensor { file, from, to } => {
                edit(&at(file)?, |bytes| tensors::copy(bytes, from, to))
            }
            Change::DropTensor { file, name } => {
                edit(&at(file)?, |bytes| tensors::drop(bytes, name))
            }
            Change::Copy { from, to } => {
                let (from, to) = (at(from)?, at(to)?);
                fs::copy(&from, to).map(|_| ()).map_err(|e| format!("{}: {e}", from.display()))
            }
            Change::Remove { file } => {
                let path = at(file)?;
                fs::remove_file(&path).map_err(|e| format!("{}: {e}", path.display()))
            }
            Change::Folder { file } => {
                let path = at(file)?;
                fs::remove_file(&path)
                    .and_then(|()| fs::create_dir(&path))
                    .map_err(|e| format!("{}: {e}", path.display()))
            }
        }
    }
}

fn edit(
    path: &Path,
    change: impl FnOnce(&mut Vec<u8>) -> Result<(), String>,
) -> Result<(), String> {
    let mut bytes = fs::read(path).map_err(|e| format!("{}: {e}", path.display()))?;
    change(&mut bytes)?;
    put(path, &bytes)
}

fn put(path: &Path, bytes: &[u8]) -> Result<(), String> {
    fs::write(path, bytes).map_err(|e| format!("{}: {e}", path.display()))
}

fn split_header(bytes: &[u8]) -> Result<(&str, &[u8]), String> {
    let broken = "no safetensors file";
    let (prefix, rest) = bytes.split_first_chunk::<8>().ok_or(broken)?;
    let length = usize::try_from(u64::from_le_bytes(*prefix)).map_err(|_| broken)?;
    let (header, data) = rest.split_at_checked(length).ok_or(broken)?;
    Ok((std::str::from_utf8(header).map_err(|_| broken)?, data))
}

fn join(header: &str, data: &[u8]) -> Vec<u8> {
    [&(header.len() as u64).to_le_bytes(), header.as_bytes(), data].concat()
}

fn replace_once(text: &str, find: &str, with: &str) -> Result<String, String> {
    match text.matches(find).count() {
        1 => Ok(text.replacen(find, with, 1)),
        count => Err(format!("`{find}` is there {count} times, expected once")),
    }
}

fn unhex(digits: &str) -> Result<Vec<u8>, String> {
    let (pairs, rest) = digits.as_bytes().as_chunks::<2>();
    let byte = |pair: &[u8; 2]| {
        let high = char::from(pair[0]).to_digit(16)?;
        let low = char::from(pair[1]).to_digit(16)?;
        Some((high * 16 + low) as u8)
    };
    let bytes: Option<Vec<u8>> = pairs.iter().map(byte).collect();
    bytes
        .filter(|_| rest.is_empty())
        .ok_or(format!("`{digits}` is not a sequence of hexadecimal bytes"))
}
