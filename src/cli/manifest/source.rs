//! Manifests in files: captures, records, or JSON of their own.

use crate::cli::Failure;
use crate::engine::manifest::Manifest;
use crate::harness::capture::Capture;
use crate::units::{Exit, JsonNode, JsonValue, parse_json};
use std::path::Path;

/// How every verb describes a file argument.
pub(super) const HELP: &str = "A capture, a record, or a manifest as JSON; FILE#PATH names one of several manifests in a file";

/// The manifest in a file.
///
/// # Errors
/// 74 for a file that cannot be read, 64 for one without a manifest or with several of them, and for a
/// manifest whose ids are not those of its fields.
pub(super) fn read(argument: &str) -> Result<Manifest, Failure> {
    let (file, wanted) = match argument.rsplit_once('#') {
        Some((file, path)) if !Path::new(argument).exists() => (file, Some(path)),
        _ => (argument, None),
    };
    let path = Path::new(file);
    if path.extension().is_some_and(|e| e == "safetensors") {
        return Capture::open(path)?
            .manifest
            .ok_or_else(|| Failure::usage(format!("{file}: the file has no manifest")));
    }
    let bytes = std::fs::read(path).map_err(|e| Failure::new(Exit::Io, format!("{file}: {e}")))?;
    let document = parse_json(&bytes).map_err(|e| Failure::usage(format!("{file}:{e}")))?;
    let mut found = Vec::new();
    search(&document, String::new(), &mut found);
    let names = || found.iter().map(|(p, _)| p.as_str()).collect::<Vec<_>>().join(", ");
    let node = match (wanted, found.as_slice()) {
        (_, []) => return Err(Failure::usage(format!("{file}: the file has no manifest"))),
        (Some(wanted), _) => found.iter().find(|(p, _)| p == wanted).ok_or_else(|| {
            Failure::usage(format!("{file}: no manifest at `{wanted}`; there are {}", names()))
        })?,
        (None, [only]) => only,
        (None, _) => {
            let message = format!(
                "{file}: there are {} manifests, at {}; name one as {file}#PATH",
                found.len(),
                names()
            );
            return Err(Failure::usage(message));
        }
    };
    Manifest::from_node(node.1).map_err(|e| Failure::usage(format!("{file}:{e}")))
}

/// Every manifest in a document, with the path of keys that leads to it.
fn search<'a>(node: &'a JsonNode, path: String, found: &mut Vec<(String, &'a JsonNode)>) {
    let step = |key: &str| if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") };
    match &node.value {
        JsonValue::Object(_) if node.get("manifest_version").is_some() => found.push((path, node)),
        JsonValue::Object(members) => {
            members.iter().for_each(|m| search(&m.node, step(&m.key), found));
        }
        JsonValue::List(items) => {
            items.iter().enumerate().for_each(|(i, n)| search(n, step(&i.to_string()), found));
        }
        _ => {}
    }
}
