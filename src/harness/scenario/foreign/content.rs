//! The digest of a Hugging Face folder, as peers declare it.

use crate::units::{Digest, Hasher};
use std::io::Read as _;
use std::path::Path;

/// SHA-256 over the lines `<SHA-256 of the file>  <name>\n` of `config.json` and of every
/// `*.safetensors` file of a folder, in the order of names.
///
/// It can be had without this project: `cd DIR; sha256sum config.json *.safetensors | LC_ALL=C sort
/// -k 2 | sha256sum`.
///
/// # Errors
/// A file cannot be read, or the folder holds none of them.
pub fn folder_digest(folder: &Path) -> std::io::Result<Digest> {
    let mut names: Vec<String> = std::fs::read_dir(folder)?
        .flatten()
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter(|name| name == "config.json" || name.ends_with(".safetensors"))
        .collect();
    if names.is_empty() {
        let message = format!("{} holds no config.json and no safetensors", folder.display());
        return Err(std::io::Error::new(std::io::ErrorKind::NotFound, message));
    }
    names.sort();
    let mut lines = String::new();
    for name in names {
        lines.push_str(&format!("{}  {name}\n", file_digest(&folder.join(&name))?));
    }
    Ok(Digest::of(lines.as_bytes()))
}

fn file_digest(path: &Path) -> std::io::Result<Digest> {
    let mut file = std::fs::File::open(path)?;
    let mut hasher = Hasher::new();
    let mut buffer = vec![0; 1 << 20];
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok(hasher.finish()),
            n => hasher.update(&buffer[..n]),
        }
    }
}
