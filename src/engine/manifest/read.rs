//! Reading a manifest from JSON, trusting nothing it says about itself.

use super::{Block, BlockName, MANIFEST_VERSION, Manifest};
use crate::units::{Canonical, JsonError, JsonNode, JsonValue, Position, parse_json};

/// A text is not a manifest, or not the one it claims to be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ManifestError {
    #[error(transparent)]
    Json(#[from] JsonError),
    #[error("{position}: {message}")]
    Layout { position: Position, message: String },
    #[error("{position}: `{key}` says {stated}, its fields give {derived}")]
    Digest { position: Position, key: String, stated: String, derived: String },
}

impl Manifest {
    /// Reads a manifest and derives every id again.
    ///
    /// # Errors
    /// With line and column: the text is no JSON, a block or a key is missing or unknown, the
    /// version is a later one, a real is not spelt canonically, or an id is not that of its fields.
    pub fn from_json(text: &[u8]) -> Result<Manifest, ManifestError> {
        Manifest::from_node(&parse_json(text)?)
    }

    /// Reads a manifest that is part of a larger document.
    ///
    /// # Errors
    /// As [`Manifest::from_json`].
    pub fn from_node(node: &JsonNode) -> Result<Manifest, ManifestError> {
        let version = member(node, "manifest_version", "the manifest")?;
        if version.as_u64() != Some(MANIFEST_VERSION) {
            return Err(layout(
                version,
                format!("manifest_version {version}; this build reads version {MANIFEST_VERSION}"),
            ));
        }
        let provenance = member(node, "provenance", "the manifest")?;
        let halves: Vec<&str> = BlockName::ALL.iter().filter_map(|b| half(*b)).collect();
        let mut top: Vec<&str> = vec!["manifest_version", "provenance"];
        top.extend(BlockName::ALL.iter().filter(|b| half(**b).is_none()).map(|b| b.as_str()));
        only(node, &top)?;
        only(provenance, &halves)?;
        let mut blocks = Vec::new();
        for name in BlockName::ALL {
            let block = match half(name) {
                Some(half) => member(provenance, half, "`provenance`")?,
                None => member(node, name.as_str(), "the manifest")?,
            };
            blocks.push(read_block(name, block)?);
        }
        Ok(Manifest::new(|name| blocks[name as usize].fields.clone()))
    }
}

fn half(name: BlockName) -> Option<&'static str> {
    name.as_str().strip_prefix("provenance.")
}

fn read_block(name: BlockName, node: &JsonNode) -> Result<Block, ManifestError> {
    let key = name.id_key();
    only(node, &["fields", &key])?;
    let fields = member(node, "fields", &format!("`{name}`"))?;
    let stated = member(node, &key, &format!("`{name}`"))?;
    let block = Block::new(name, canonical(fields)?);
    let derived = block.id().to_string();
    if stated.as_str() != Some(&derived) {
        return Err(ManifestError::Digest {
            position: stated.position,
            key,
            stated: stated.to_string(),
            derived,
        });
    }
    Ok(block)
}

/// The value as it was digested. Reals stand as strings in canonical JSON, so a bare one is a
/// value that no digest covers.
fn canonical(node: &JsonNode) -> Result<Canonical, ManifestError> {
    Ok(match &node.value {
        JsonValue::Null => Canonical::Null,
        JsonValue::Bool(b) => Canonical::Bool(*b),
        JsonValue::Text(t) => Canonical::Text(t.clone()),
        JsonValue::Number(n) => match n.parse::<i128>() {
            Ok(i) if i.to_string() == *n => Canonical::Int(i),
            _ => {
                let message =
                    format!("{n} is not an integer; canonical JSON spells reals \"%.16e\"");
                return Err(layout(node, message));
            }
        },
        JsonValue::List(items) => {
            Canonical::List(items.iter().map(canonical).collect::<Result<_, _>>()?)
        }
        JsonValue::Object(members) => Canonical::Object(
            members
                .iter()
                .map(|m| Ok((m.key.clone(), canonical(&m.node)?)))
                .collect::<Result<_, ManifestError>>()?,
        ),
    })
}

fn member<'a>(node: &'a JsonNode, key: &str, of: &str) -> Result<&'a JsonNode, ManifestError> {
    match node.get(key) {
        Some(member) => Ok(&member.node),
        None => Err(layout(node, format!("`{key}` of {of} is missing"))),
    }
}

fn only(node: &JsonNode, known: &[&str]) -> Result<(), ManifestError> {
    let JsonValue::Object(members) = &node.value else {
        return Err(layout(node, format!("expected an object, found {node}")));
    };
    match members.iter().find(|m| !known.contains(&m.key.as_str())) {
        None => Ok(()),
        Some(m) => Err(ManifestError::Layout {
            position: m.position,
            message: format!("unknown key `{}`; expected {}", m.key, known.join(", ")),
        }),
    }
}

fn layout(node: &JsonNode, message: String) -> ManifestError {
    ManifestError::Layout { position: node.position, message }
}
