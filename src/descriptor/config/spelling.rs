//! Several spellings of one fact, which must agree.

use super::Fields;
use crate::descriptor::Refusal;
use crate::units::{JsonNode, JsonValue};

/// A fact under one of its spellings: the object and the key it was found under, and its value.
pub(in crate::descriptor) type Found<'f, 'a> = (&'f Fields<'a>, &'static str, &'a JsonNode);

/// The value of a fact that several keys (of one or several objects) may give.
///
/// # Errors
/// Two keys give different values; the message names both.
pub(in crate::descriptor) fn agreed<'f, 'a>(
    places: &[(&'f Fields<'a>, &'static str)],
) -> Result<Option<Found<'f, 'a>>, Box<Refusal>> {
    let mut first: Option<Found<'f, 'a>> = None;
    for (fields, key) in places {
        let Some(node) = fields.get(key) else { continue };
        match first {
            None => first = Some((fields, key, node)),
            Some((_, _, known)) if same_value(known, node) => {}
            Some((other, other_key, known)) => {
                return Err(fields.refuse(
                    key,
                    format!(
                        "expected {known} as `{}` says in line {}, found {node}",
                        other.path(other_key),
                        known.position.line
                    ),
                ));
            }
        }
    }
    Ok(first)
}

/// Equal values: numbers by their value (`1e6` and `1000000.0`), objects in any key order.
pub(super) fn same_value(a: &JsonNode, b: &JsonNode) -> bool {
    match (&a.value, &b.value) {
        (JsonValue::Number(_), JsonValue::Number(_)) => match (a.as_u64(), b.as_u64()) {
            (Some(a), Some(b)) => a == b,
            _ => a.as_f64() == b.as_f64(),
        },
        (JsonValue::List(a), JsonValue::List(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same_value(a, b))
        }
        (JsonValue::Object(a), JsonValue::Object(members)) => {
            a.len() == members.len()
                && a.iter().all(|m| b.get(&m.key).is_some_and(|n| same_value(&m.node, &n.node)))
        }
        (a, b) => a == b,
    }
}
