//! Values of keys that must be there, with their types.

use crate::descriptor::config::Fields;
use crate::descriptor::{Refusal, Word};
use crate::units::{JsonNode, JsonValue, nearest};

type Result<T> = std::result::Result<T, Box<Refusal>>;

/// A text.
pub(super) fn text(f: &Fields<'_>, key: &'static str) -> Result<String> {
    let node = f.present(key)?;
    node.as_str().map(str::to_owned).ok_or_else(|| f.expected(key, node, "a text"))
}

/// A truth value.
pub(super) fn flag(f: &Fields<'_>, key: &'static str) -> Result<bool> {
    let node = f.present(key)?;
    node.as_bool().ok_or_else(|| f.expected(key, node, "true or false"))
}

/// A positive integer.
pub(super) fn count(f: &Fields<'_>, key: &'static str) -> Result<usize> {
    let node = f.present(key)?;
    node.as_u64()
        .and_then(|n| usize::try_from(n).ok())
        .filter(|n| *n > 0)
        .ok_or_else(|| f.expected(key, node, "a positive integer"))
}

/// A positive finite real.
pub(super) fn real(f: &Fields<'_>, key: &'static str) -> Result<f64> {
    let node = f.present(key)?;
    f.fp32(key, node)
}

/// A finite real that is not negative.
pub(super) fn magnitude(f: &Fields<'_>, key: &'static str) -> Result<f64> {
    let node = f.present(key)?;
    node.as_f64().filter(|r| *r >= 0.0).ok_or_else(|| f.expected(key, node, "a number from 0 on"))
}

/// A positive integer, or null.
pub(super) fn optional_count(f: &Fields<'_>, key: &'static str) -> Result<Option<usize>> {
    (!f.present(key)?.is_null()).then(|| count(f, key)).transpose()
}

/// A list.
pub(super) fn list<'a>(f: &Fields<'a>, key: &'static str) -> Result<&'a [JsonNode]> {
    let node = f.present(key)?;
    match &node.value {
        JsonValue::List(items) => Ok(items),
        _ => Err(f.expected(key, node, "a list")),
    }
}

/// A word of a kind.
pub(super) fn word<T: Word>(f: &Fields<'_>, key: &'static str) -> Result<T> {
    word_of(f, key, f.present(key)?)
}

/// A list of words of a kind.
pub(super) fn words<T: Word>(f: &Fields<'_>, key: &'static str) -> Result<Vec<T>> {
    list(f, key)?.iter().map(|node| word_of(f, key, node)).collect()
}

fn word_of<T: Word>(f: &Fields<'_>, key: &'static str, node: &JsonNode) -> Result<T> {
    let found = node.as_str();
    found.and_then(T::parse).ok_or_else(|| {
        let words = || T::WORDS.iter().map(|(_, word)| *word);
        let expected = words().collect::<Vec<_>>().join(", ");
        let refusal = f.expected_at(node, key, &format!("one of {expected}"));
        match found.and_then(|found| nearest(found, words())) {
            Some(near) => refusal.help(format!("is \"{near}\" meant?")),
            None => refusal,
        }
    })
}
