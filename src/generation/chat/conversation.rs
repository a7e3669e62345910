//! Messages, and the other variables that a template may look at.

use super::ChatError;
use crate::units::{JsonMember, JsonNode, JsonValue, Position, parse_json};
use std::path::Path;

/// The variable that says whether an assistant's turn is to be opened.
pub(super) const OPENS_TURN: &str = "add_generation_prompt";

/// The variables of a template: `messages`, perhaps `tools`, and whatever else the file gives.
#[derive(Clone, Debug, PartialEq)]
pub struct Conversation {
    /// In the order of the file; `messages` is among them.
    pub(super) variables: Vec<(String, JsonNode)>,
}

impl Conversation {
    /// One user turn, after a system message if there is one.
    pub fn of_user(system: Option<&str>, user: &str) -> Conversation {
        let messages =
            system.map(|s| message("system", s)).into_iter().chain([message("user", user)]);
        Conversation {
            variables: vec![("messages".into(), node(JsonValue::List(messages.collect())))],
        }
    }

    /// Reads a list of messages, or an object with `messages` whose other keys are variables of the
    /// template (`tools`, `documents`, `enable_thinking`, …). `path` is for messages of errors.
    ///
    /// # Errors
    /// With line and column: no strict JSON, no messages, a message without a text `role`, or with
    /// a `content` that is neither text, list nor null; an `add_generation_prompt` that is no truth value.
    pub fn parse(path: &Path, bytes: &[u8]) -> Result<Conversation, ChatError> {
        let refuse = |position: Position, problem: String| ChatError::File {
            path: path.to_owned(),
            position,
            problem,
        };
        let document = parse_json(bytes).map_err(|e| refuse(e.position, e.message))?;
        let position = document.position;
        let variables: Vec<(String, JsonNode)> = match document.value {
            JsonValue::List(_) => vec![("messages".into(), document)],
            JsonValue::Object(members) => {
                members.into_iter().map(|m: JsonMember| (m.key, m.node)).collect()
            }
            _ => {
                let problem = format!(
                    "expected a list of messages, or an object with `messages`, found {document}"
                );
                return Err(refuse(position, problem));
            }
        };
        let Some((_, messages)) = variables.iter().find(|(key, _)| key == "messages") else {
            return Err(refuse(position, "expected `messages`, found no such key".into()));
        };
        check_messages(messages).map_err(|(at, problem)| refuse(at, problem))?;
        let opens = variables.iter().find(|(key, _)| key == OPENS_TURN).map(|(_, node)| node);
        if let Some(node) = opens.filter(|node| node.as_bool().is_none()) {
            let problem = format!("`{OPENS_TURN}`: expected true or false, found {node}");
            return Err(refuse(node.position, problem));
        }
        Ok(Conversation { variables })
    }

    /// Whether the file says itself if an assistant's turn is to be opened.
    pub(super) fn opens_turn(&self) -> Option<bool> {
        let (_, node) = self.variables.iter().find(|(key, _)| key == OPENS_TURN)?;
        node.as_bool()
    }
}

fn check_messages(messages: &JsonNode) -> Result<(), (Position, String)> {
    let JsonValue::List(items) = &messages.value else {
        let problem = format!("expected a list of messages, found {messages}");
        return Err((messages.position, problem));
    };
    if items.is_empty() {
        return Err((messages.position, "expected at least one message, found none".into()));
    }
    for (at, item) in items.iter().enumerate() {
        let JsonValue::Object(_) = item.value else {
            let problem =
                format!("message {at}: expected an object with `role` and `content`, found {item}");
            return Err((item.position, problem));
        };
        match item.get("role").map(|m| &m.node) {
            Some(role) if role.as_str().is_some_and(|r| !r.is_empty()) => {}
            Some(role) => {
                let problem = format!("message {at}: expected a text as `role`, found {role}");
                return Err((role.position, problem));
            }
            None => {
                let problem = format!("message {at}: expected `role` (system, user, assistant, …)");
                return Err((item.position, problem));
            }
        }
        if let Some(content) = item.get("content").map(|m| &m.node)
            && !matches!(content.value, JsonValue::Text(_) | JsonValue::List(_) | JsonValue::Null)
        {
            let problem = format!(
                "message {at}: expected a text, a list or null as `content`, found {content}"
            );
            return Err((content.position, problem));
        }
    }
    Ok(())
}

const NOWHERE: Position = Position { line: 1, column: 1 };

fn node(value: JsonValue) -> JsonNode {
    JsonNode { position: NOWHERE, value }
}

fn message(role: &str, content: &str) -> JsonNode {
    let member = |key: &str, text: &str| JsonMember {
        position: NOWHERE,
        key: key.to_owned(),
        node: node(JsonValue::Text(text.to_owned())),
    };
    node(JsonValue::Object(vec![member("role", role), member("content", content)]))
}
