//! What two descriptors differ in.

use super::Descriptor;
use serde_json::Value;
use std::fmt;

/// One key of the canonical JSON in which two descriptors differ; roles are named
/// (`roles.attn_q.shape`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    pub key: String,
    pub expected: String,
    pub found: String,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}`: expected {}, found {}", self.key, self.expected, self.found)
    }
}

impl Descriptor {
    /// The keys in which `found` differs from `self`, in the order of the canonical JSON.
    pub fn differences(&self, found: &Descriptor) -> Vec<Difference> {
        let mut all = Vec::new();
        compare("", &self.to_value(), &found.to_value(), &mut all);
        all
    }
}

fn compare(key: &str, expected: &Value, found: &Value, all: &mut Vec<Difference>) {
    match (expected, found) {
        (a, b) if a == b => {}
        (Value::Object(a), Value::Object(b)) if a.keys().eq(b.keys()) => {
            for (name, value) in a {
                let key = if key.is_empty() { name.clone() } else { format!("{key}.{name}") };
                compare(&key, value, &b[name], all);
            }
        }
        (Value::Array(a), Value::Array(b)) if named(a).is_some() && named(a) == named(b) => {
            for (name, (a, b)) in named(a).into_iter().flatten().zip(a.iter().zip(b)) {
                compare(&format!("{key}.{name}"), a, b, all);
            }
        }
        (a, b) => all.push(Difference { key: key.to_owned(), expected: short(a), found: short(b) }),
    }
}

/// The names of a list of named objects.
fn named(items: &[Value]) -> Option<Vec<&str>> {
    items.iter().map(|item| item.get("name").and_then(Value::as_str)).collect()
}

fn short(value: &Value) -> String {
    const LIMIT: usize = 80;
    let text = match value.as_array().map(|items| named(items)) {
        Some(Some(names)) if !names.is_empty() => names.join(", "),
        _ => value.to_string(),
    };
    if text.chars().count() <= LIMIT {
        return text;
    }
    text.chars().take(LIMIT).chain(['…']).collect()
}
