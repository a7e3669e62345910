//! `prompts.json`: a name for every prompt, given as token ids or as text.

use super::CaptureError;
use crate::units::{JsonNode, JsonValue, Position, parse_json};
use std::path::Path;

/// A prompt as the file gives it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PromptSource {
    pub name: String,
    pub content: PromptContent,
}

/// Token ids, or text for the model's tokeniser.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PromptContent {
    Ids(Vec<u32>),
    Text(String),
}

/// A prompt as the model gets it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prompt {
    pub name: String,
    pub token_ids: Vec<u32>,
    /// The text that gave the ids, where there was one.
    pub text: Option<String>,
}

impl PromptSource {
    /// The prompt's ids; `encode` turns text into them.
    ///
    /// # Errors
    /// Those of `encode`.
    pub fn resolve<E>(self, encode: impl FnOnce(&str) -> Result<Vec<u32>, E>) -> Result<Prompt, E> {
        Ok(match self.content {
            PromptContent::Ids(token_ids) => Prompt { name: self.name, token_ids, text: None },
            PromptContent::Text(text) => {
                Prompt { name: self.name, token_ids: encode(&text)?, text: Some(text) }
            }
        })
    }
}

/// The prompts of a file, in its order. `path` is for messages.
///
/// # Errors
/// With line and column: no strict JSON, no object, an unusable name (names become parts of tensor
/// names: letters, digits, `-` and `_`), an empty prompt, an id that is no integer below 2³².
pub fn parse_prompts(path: &Path, bytes: &[u8]) -> Result<Vec<PromptSource>, CaptureError> {
    let refuse = |position: Position, message: String| CaptureError::Prompts {
        path: path.to_owned(),
        position,
        message,
    };
    let document = parse_json(bytes).map_err(|e| refuse(e.position, e.message))?;
    let JsonValue::Object(members) = &document.value else {
        let message = format!("expected an object of prompts by name, found {document}");
        return Err(refuse(document.position, message));
    };
    if members.is_empty() {
        return Err(refuse(document.position, "the file names no prompt".into()));
    }
    let mut prompts = Vec::new();
    for member in members {
        let name = member.key.clone();
        let usable = |c: char| c.is_ascii_alphanumeric() || "-_".contains(c);
        if name.is_empty() || !name.chars().all(usable) {
            let message = format!(
                "the name `{name}` cannot be part of a tensor name; use letters, digits, - and _"
            );
            return Err(refuse(member.position, message));
        }
        let content = content(&name, &member.node).map_err(|(at, m)| refuse(at, m))?;
        prompts.push(PromptSource { name, content });
    }
    Ok(prompts)
}

fn content(name: &str, node: &JsonNode) -> Result<PromptContent, (Position, String)> {
    let items = match &node.value {
        JsonValue::Text(text) if !text.is_empty() => return Ok(PromptContent::Text(text.clone())),
        JsonValue::List(items) if !items.is_empty() => items,
        JsonValue::Text(_) | JsonValue::List(_) => {
            return Err((node.position, format!("prompt `{name}` is empty")));
        }
        _ => {
            let message = format!("prompt `{name}` is {node}; expected a text or a list of ids");
            return Err((node.position, message));
        }
    };
    let ids = items.iter().map(|item| {
        item.as_u64().and_then(|id| u32::try_from(id).ok()).ok_or_else(|| {
            (item.position, format!("prompt `{name}`: expected a token id, found {item}"))
        })
    });
    Ok(PromptContent::Ids(ids.collect::<Result<_, _>>()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Vec<PromptSource>, String> {
        parse_prompts(Path::new("p.json"), text.as_bytes()).map_err(|e| e.to_string())
    }

    #[test]
    fn ids_and_text_keep_the_order_of_the_file() {
        let prompts = parse(r#"{"b": [5, 4294967295], "a-1": "Hi"}"#).unwrap();
        assert_eq!(prompts[0].name, "b");
        assert_eq!(prompts[0].content, PromptContent::Ids(vec![5, u32::MAX]));
        assert_eq!(prompts[1].content, PromptContent::Text("Hi".into()));
    }

    #[test]
    fn mistakes_are_located() {
        for (text, message) in [
            ("[1]", "p.json:1:1: expected an object of prompts by name, found [1]"),
            ("{}", "p.json:1:1: the file names no prompt"),
            ("{\"a\": [1, -2]}", "p.json:1:11: prompt `a`: expected a token id, found -2"),
            ("{\"a\": [1.5]}", "p.json:1:8: prompt `a`: expected a token id, found 1.5"),
            (
                "{\"a\": [4294967296]}",
                "p.json:1:8: prompt `a`: expected a token id, found 4294967296",
            ),
            ("{\"a\": \"\"}", "p.json:1:7: prompt `a` is empty"),
            ("{\n \"a\": 5}", "p.json:2:7: prompt `a` is 5; expected a text or a list of ids"),
            (
                "{\"a.b\": [1]}",
                "p.json:1:2: the name `a.b` cannot be part of a tensor name; use letters, digits, - and _",
            ),
        ] {
            assert_eq!(parse(text).unwrap_err(), message);
        }
        let twice = parse("{\"a\": [1], \"a\": [2]}").unwrap_err();
        assert!(twice.starts_with("p.json:1:12:"), "{twice}");
    }
}
