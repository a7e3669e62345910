//! Values with positions.

use std::fmt;

/// A place in a text file, counted from 1; columns count characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Position {
    pub line: usize,
    pub column: usize,
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.line, self.column)
    }
}

/// A JSON value and where it starts.
#[derive(Clone, Debug, PartialEq)]
pub struct JsonNode {
    pub position: Position,
    pub value: JsonValue,
}

/// What a JSON value is.
#[derive(Clone, Debug, PartialEq)]
pub enum JsonValue {
    Null,
    Bool(bool),
    /// As spelt in the file; valid by JSON's grammar.
    Number(String),
    Text(String),
    List(Vec<JsonNode>),
    /// Members in file order; keys are unique.
    Object(Vec<JsonMember>),
}

/// A key, where it starts, and its value.
#[derive(Clone, Debug, PartialEq)]
pub struct JsonMember {
    pub position: Position,
    pub key: String,
    pub node: JsonNode,
}

impl JsonNode {
    /// The member of an object, or `None` (also for a value that is no object).
    pub fn get(&self, key: &str) -> Option<&JsonMember> {
        match &self.value {
            JsonValue::Object(members) => members.iter().find(|m| m.key == key),
            _ => None,
        }
    }

    /// Whether the value is `null`.
    pub fn is_null(&self) -> bool {
        self.value == JsonValue::Null
    }

    /// The value as a non-negative integer: plain digits (`4`, not `4.0`), at most 2⁶⁴ − 1.
    pub fn as_u64(&self) -> Option<u64> {
        match &self.value {
            JsonValue::Number(text) => text.parse().ok(),
            _ => None,
        }
    }

    /// The value as a finite real.
    pub fn as_f64(&self) -> Option<f64> {
        match &self.value {
            JsonValue::Number(text) => text.parse::<f64>().ok().filter(|r| r.is_finite()),
            _ => None,
        }
    }

    /// The value as text.
    pub fn as_str(&self) -> Option<&str> {
        match &self.value {
            JsonValue::Text(text) => Some(text),
            _ => None,
        }
    }

    /// The value as a truth value.
    pub fn as_bool(&self) -> Option<bool> {
        match self.value {
            JsonValue::Bool(b) => Some(b),
            _ => None,
        }
    }
}

impl fmt::Display for JsonNode {
    /// The value on one line, long ones cut: what a message shows as *found*.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const LIMIT: usize = 60;
        let mut text = String::new();
        spell(self, LIMIT, &mut text);
        if text.chars().count() > LIMIT {
            text = text.chars().take(LIMIT).collect();
            text.push('…');
        }
        f.write_str(&text)
    }
}

fn spell(node: &JsonNode, limit: usize, out: &mut String) {
    let separated = |out: &mut String, first: bool| {
        if !first {
            out.push_str(", ");
        }
    };
    match &node.value {
        JsonValue::Null => out.push_str("null"),
        JsonValue::Bool(b) => out.push_str(if *b { "true" } else { "false" }),
        JsonValue::Number(text) => out.push_str(text),
        JsonValue::Text(text) => out.push_str(&serde_json::Value::from(text.as_str()).to_string()),
        JsonValue::List(items) => {
            out.push('[');
            for (i, item) in items.iter().enumerate() {
                if out.len() > limit * 4 {
                    break;
                }
                separated(out, i == 0);
                spell(item, limit, out);
            }
            out.push(']');
        }
        JsonValue::Object(members) => {
            out.push('{');
            for (i, member) in members.iter().enumerate() {
                if out.len() > limit * 4 {
                    break;
                }
                separated(out, i == 0);
                out.push_str(&format!("\"{}\": ", member.key.escape_debug()));
                spell(&member.node, limit, out);
            }
            out.push('}');
        }
    }
}
