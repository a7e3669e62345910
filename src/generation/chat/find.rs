//! Where a checkpoint keeps its template and the names of its special tokens.

use super::ChatError;
use crate::units::{JsonNode, JsonValue, Position, parse_json};
use std::path::Path;

/// Largest accepted file; public tokenizer configs are below 200 kB.
const LIMIT_BYTES: u64 = 16 << 20;

/// A template as found.
#[derive(Clone, Debug)]
pub(super) struct Found {
    /// File and, inside JSON, key: lines of messages count inside this.
    pub(super) place: String,
    pub(super) source: String,
}

/// The template of a folder: `chat_template.jinja`, else `chat_template.json`, else the one in
/// `tokenizer_config.json` (of several, the one named `default`), as transformers looks for it.
pub(super) fn find_template(folder: &Path) -> Result<Found, ChatError> {
    let path = folder.join("chat_template.jinja");
    if let Some(bytes) = read(&path)? {
        let source = String::from_utf8(bytes).map_err(|e| {
            let problem = format!("not UTF-8 text (byte {})", e.utf8_error().valid_up_to());
            ChatError::File { path: path.clone(), position: TOP, problem }
        })?;
        return Ok(Found { place: path.display().to_string(), source });
    }
    for name in ["chat_template.json", "tokenizer_config.json"] {
        let path = folder.join(name);
        let Some(document) = read_json(&path)? else { continue };
        let Some(node) = document.get("chat_template").map(|m| &m.node) else { continue };
        if let Some(source) = template_of(&path, node)? {
            let place = format!("{}:`chat_template`", path.display());
            return Ok(Found { place, source });
        }
    }
    Err(ChatError::NoTemplate { folder: folder.to_owned() })
}

fn template_of(path: &Path, node: &JsonNode) -> Result<Option<String>, ChatError> {
    let refuse = |node: &JsonNode, problem: String| ChatError::File {
        path: path.to_owned(),
        position: node.position,
        problem,
    };
    match &node.value {
        JsonValue::Null => Ok(None),
        JsonValue::Text(text) => Ok(Some(text.clone())),
        JsonValue::List(items) => {
            let named = |item: &&JsonNode| {
                item.get("name").and_then(|m| m.node.as_str()) == Some("default")
            };
            if let Some(second) = items.iter().filter(named).nth(1) {
                let problem = "`chat_template` has a second template named \"default\"";
                return Err(refuse(second, problem.to_owned()));
            }
            let template = items.iter().find(named).and_then(|item| item.get("template"));
            match template.and_then(|m| m.node.as_str()) {
                Some(text) => Ok(Some(text.to_owned())),
                None => {
                    let problem = "`chat_template` is a list without a template named \"default\"";
                    Err(refuse(node, problem.to_owned()))
                }
            }
        }
        _ => Err(refuse(node, format!("expected a text as `chat_template`, found {node}"))),
    }
}

/// The special tokens that templates know by name (`bos_token`, `eos_token`, …).
pub(super) fn special_tokens(folder: &Path) -> Result<Vec<(String, String)>, ChatError> {
    const NAMES: [&str; 7] = [
        "bos_token",
        "eos_token",
        "unk_token",
        "sep_token",
        "pad_token",
        "cls_token",
        "mask_token",
    ];
    let mut tokens = Vec::new();
    for file in ["tokenizer_config.json", "special_tokens_map.json"] {
        let Some(document) = read_json(&folder.join(file))? else { continue };
        for name in NAMES {
            let known = tokens.iter().any(|(n, _): &(String, String)| n == name);
            if let Some(text) = document.get(name).and_then(|m| token_text(&m.node))
                && !known
            {
                tokens.push((name.to_owned(), text.to_owned()));
            }
        }
    }
    Ok(tokens)
}

/// The tokeniser's own end token, with which chat models end a turn; `None` where it names none.
///
/// # Errors
/// As for templates: files that cannot be read or are no strict JSON.
pub fn end_of_turn(folder: &Path) -> Result<Option<String>, ChatError> {
    let tokens = special_tokens(folder)?;
    Ok(tokens.into_iter().find(|(name, _)| name == "eos_token").map(|(_, text)| text))
}

/// `"<s>"` or `{"content": "<s>", …}`.
fn token_text(node: &JsonNode) -> Option<&str> {
    node.as_str().or_else(|| node.get("content").and_then(|m| m.node.as_str()))
}

const TOP: Position = Position { line: 1, column: 1 };

fn read_json(path: &Path) -> Result<Option<JsonNode>, ChatError> {
    let Some(bytes) = read(path)? else { return Ok(None) };
    let refuse = |position, problem| ChatError::File { path: path.to_owned(), position, problem };
    let document = parse_json(&bytes).map_err(|e| refuse(e.position, e.message))?;
    match document.value {
        JsonValue::Object(_) => Ok(Some(document)),
        _ => Err(refuse(document.position, format!("expected an object, found {document}"))),
    }
}

/// The bytes of a file; `None` if there is none.
fn read(path: &Path) -> Result<Option<Vec<u8>>, ChatError> {
    let refuse = |source| ChatError::Read { path: path.to_owned(), source };
    let found_bytes = match std::fs::metadata(path) {
        Ok(metadata) => metadata.len(),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(refuse(e)),
    };
    if found_bytes > LIMIT_BYTES {
        let path = path.to_owned();
        return Err(ChatError::TooLarge { path, found_bytes, limit_bytes: LIMIT_BYTES });
    }
    std::fs::read(path).map(Some).map_err(refuse)
}
