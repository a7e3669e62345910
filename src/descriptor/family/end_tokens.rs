//! The tokens that end a generation.

use super::ConfigFiles;
use crate::descriptor::Refusal;
use crate::descriptor::config::Fields;
use crate::units::{JsonNode, JsonValue, parse_json};

type Result<T> = std::result::Result<T, Box<Refusal>>;

/// The end tokens of every place that gives some, in ascending order.
pub(super) fn read_end_tokens(
    outer: &Fields<'_>,
    text: &Fields<'_>,
    files: &ConfigFiles<'_>,
    vocab: usize,
) -> Result<Vec<u32>> {
    let mut tokens = end_tokens_of(outer, vocab)?;
    tokens.extend(end_tokens_of(text, vocab)?);
    if let Some((file, bytes)) = files.generation_config {
        let node = parse_json(bytes).map_err(|e| Refusal::of_syntax(file, e))?;
        tokens.extend(end_tokens_of(&Fields::of(file, &node)?, vocab)?);
    }
    tokens.sort_unstable();
    tokens.dedup();
    Ok(tokens)
}

fn end_tokens_of(fields: &Fields<'_>, vocab: usize) -> Result<Vec<u32>> {
    const KEY: &str = "eos_token_id";
    let Some(node) = fields.get(KEY) else { return Ok(Vec::new()) };
    let items = match &node.value {
        JsonValue::List(items) => items.as_slice(),
        _ => std::slice::from_ref(node),
    };
    let id_of = |item: &JsonNode| {
        item.as_u64()
            .filter(|id| *id < vocab as u64)
            .and_then(|id| u32::try_from(id).ok())
            .ok_or_else(|| fields.expected(KEY, item, &format!("token ids below {vocab}")))
    };
    items.iter().map(id_of).collect()
}
