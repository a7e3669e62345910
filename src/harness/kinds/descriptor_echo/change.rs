//! Descriptors that differ from a committed one in one key.

use super::gate::engine;
use crate::descriptor::Descriptor;
use crate::weights::Model;
use serde_json::{Map, Number, Value, json};

/// A descriptor of which one key has another value.
pub(super) struct Change {
    /// `norm_epsilon`, `rope_scaling.factor`.
    pub(super) key: String,
    pub(super) value: Value,
    before: Value,
    after: Value,
}

/// What became of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Seen {
    /// The engine echoes it, under its key and no other.
    Held,
    /// The descriptor does not allow it, or the weights do not fit it.
    Refused,
}

/// Values of keys that hold a word.
const WORDS: [(&str, &[&str]); 8] = [
    ("norm_style", &["plain", "one_plus"]),
    ("output_gate", &["none", "sigmoid"]),
    ("rope_convention", &["half_split", "interleaved"]),
    ("router_logits", &["model", "f32"]),
    ("router_weights", &["model", "f32"]),
    ("shared_gate", &["none", "sigmoid"]),
    ("layer_mixers", &["full_attention", "mla", "gdn"]),
    ("layer_ffns", &["dense", "moe"]),
];

/// Every change of one key of a descriptor's canonical JSON, the weights' roles apart.
///
/// # Errors
/// The text is no JSON object.
pub(super) fn changes(canonical: &str) -> Result<Vec<Change>, String> {
    let before: Value = serde_json::from_str(canonical).map_err(|e| e.to_string())?;
    let object = before.as_object().ok_or("the descriptor is no object")?;
    let mut all = Vec::new();
    let mut add = |key: String, value: Value, after: Map<String, Value>| {
        all.push(Change { key, value, before: before.clone(), after: Value::Object(after) });
    };
    for (key, value) in object.iter().filter(|(key, _)| *key != "roles") {
        for other in others(key, value) {
            let mut after = object.clone();
            after.insert(key.clone(), other.clone());
            add(key.clone(), other, after);
        }
        for (inner, value) in value.as_object().into_iter().flatten() {
            for other in others(inner, value) {
                let mut after = object.clone();
                after[key][inner] = other.clone();
                add(format!("{key}.{inner}"), other, after);
            }
        }
    }
    Ok(all)
}

/// Other values of a key: near ones, so that as many as possible are still models.
fn others(key: &str, value: &Value) -> Vec<Value> {
    let words = WORDS.iter().find(|(name, _)| *name == key).map_or(&[][..], |(_, words)| *words);
    match value {
        Value::Bool(flag) => vec![json!(!flag)],
        Value::Number(number) => numbers(number),
        Value::String(word) if words.is_empty() => vec![json!(format!("{word}x"))],
        Value::String(word) => words.iter().filter(|w| *w != word).map(|w| json!(w)).collect(),
        Value::Array(items) if words.is_empty() => {
            vec![json!([items.as_slice(), &[json!(0)]].concat())]
        }
        Value::Array(items) => {
            let last = items.last();
            let others = words.iter().filter(|w| last.is_some_and(|l| l != *w));
            others.map(|w| json!([&items[..items.len() - 1], &[json!(w)]].concat())).collect()
        }
        Value::Null if key == "window" => vec![json!(5)],
        Value::Null | Value::Object(_) => Vec::new(),
    }
}

fn numbers(number: &Number) -> Vec<Value> {
    match number.as_u64() {
        Some(n) => vec![json!(n + 1), json!(n / 2)],
        None => number.as_f64().map(|x| json!(x * 1.5)).into_iter().collect(),
    }
}

impl Change {
    /// Whether an engine over this descriptor holds it.
    ///
    /// # Errors
    /// It holds another one: a sentence that names the key.
    pub(super) fn seen(&self, model: &Model) -> Result<Seen, String> {
        let Ok(given) = Descriptor::from_json("changed", self.after.to_string().as_bytes()) else {
            return Ok(Seen::Refused);
        };
        match engine(model, given) {
            Ok(engine) => self.judge(engine.descriptor()).map(|()| Seen::Held),
            Err(_) => Ok(Seen::Refused),
        }
    }

    /// Whether `held` is this descriptor, and differs from the one before under this key alone.
    pub(super) fn judge(&self, held: &Descriptor) -> Result<(), String> {
        let Change { key, value, before, after } = self;
        let echoed: Value = serde_json::from_str(&held.to_json()).map_err(|e| e.to_string())?;
        let before = Descriptor::from_json("before", before.to_string().as_bytes())
            .map_err(|e| e.to_string())?;
        let keys: Vec<String> = before.differences(held).into_iter().map(|d| d.key).collect();
        if echoed == *after && keys == [key.clone()] {
            return Ok(());
        }
        let shown = if keys.is_empty() { "nothing".to_owned() } else { keys.join(", ") };
        Err(format!("`{key}` changed to {value} shows as a change of {shown}"))
    }
}
