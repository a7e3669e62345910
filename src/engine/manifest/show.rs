//! Differences as JSON.

use super::{FieldDifference, Informational, ManifestDifference};
use crate::units::Canonical;
use serde_json::{Map, Value, json};

impl ManifestDifference {
    /// Blocks with their ids, fields that differ, and facts that are not established.
    pub fn to_json(&self) -> Value {
        let field = |path: &str, left: &Option<Canonical>, right: &Option<Canonical>| {
            let side = |v: &Option<Canonical>| v.as_ref().map(Canonical::to_json);
            json!({ "path": path, "left": side(left), "right": side(right) })
        };
        let blocks: Map<String, Value> = self
            .blocks
            .iter()
            .map(|b| {
                let fields: Vec<Value> = b
                    .fields
                    .iter()
                    .map(|FieldDifference { path, left, right }| field(path, left, right))
                    .collect();
                let value = json!({
                    "equal": b.equal(),
                    "left_id": b.left_id.to_string(),
                    "right_id": b.right_id.to_string(),
                    "fields": fields,
                    "unestablished": b.unestablished,
                });
                (b.name.as_str().to_owned(), value)
            })
            .collect();
        let informational: Vec<Value> = self
            .informational
            .iter()
            .map(|Informational { path, left, right }| field(path, left, right))
            .collect();
        json!({ "blocks": blocks, "informational": informational })
    }
}
