//! The reference file.

use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::Path;

/// What another implementation makes of texts and ids.
#[derive(Debug, Deserialize)]
pub(super) struct Reference {
    /// Ids that the tokeniser has.
    pub(super) vocab_size: usize,
    /// Control tokens.
    pub(super) special_tokens: BTreeMap<String, u32>,
    pub(super) encode: Vec<Encoded>,
    pub(super) decode_lossy: Vec<Lossy>,
    pub(super) chat: Vec<Chat>,
}

/// A text, control tokens read as themselves.
#[derive(Debug, Deserialize)]
pub(super) struct Encoded {
    pub(super) text: String,
    pub(super) ids: Vec<u32>,
    pub(super) ids_bos_variant: Vec<u32>,
    /// The text of the ids, which the normaliser may have changed.
    pub(super) decoded: String,
    pub(super) decoded_skip_special: String,
    /// The text that each id completes.
    pub(super) stream: Vec<String>,
}

/// Ids whose bytes are no valid text.
#[derive(Debug, Deserialize)]
pub(super) struct Lossy {
    pub(super) ids: Vec<u32>,
    pub(super) bytes_hex: String,
    pub(super) decoded: String,
}

/// A rendered conversation.
#[derive(Debug, Deserialize)]
pub(super) struct Chat {
    pub(super) text: String,
    pub(super) ids: Vec<u32>,
}

impl Reference {
    pub(super) fn read(path: &Path) -> Result<Reference, String> {
        let text = std::fs::read_to_string(path)
            .map_err(|e| format!("cannot read {}: {e}", path.display()))?;
        let reference: Reference = serde_json::from_str(&text)
            .map_err(|e| format!("{} is no tokeniser reference: {e}", path.display()))?;
        let empty = [
            ("encode", reference.encode.is_empty()),
            ("decode_lossy", reference.decode_lossy.is_empty()),
            ("chat", reference.chat.is_empty()),
            ("special_tokens", reference.special_tokens.is_empty()),
        ];
        match empty.into_iter().find(|(_, empty)| *empty) {
            Some((key, _)) => Err(format!("{}: `{key}` is empty", path.display())),
            None => Ok(reference),
        }
    }
}
