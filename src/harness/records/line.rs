//! One line of a record file: JSON with the digest of the line before it.

use crate::units::Digest;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// The key that links a line to the one before it.
pub(in crate::harness) const PREVIOUS: &str = "previous";

/// The link of the first line: a digest of the run's id.
pub(in crate::harness) fn origin(run_id: &str) -> String {
    Digest::of(run_id.as_bytes()).to_string()
}

/// A record as a line with its line end.
pub(in crate::harness) fn encode(
    record: &impl Serialize,
    previous: &str,
) -> serde_json::Result<String> {
    let mut value = serde_json::to_value(record)?;
    if let Value::Object(fields) = &mut value {
        fields.insert(PREVIOUS.to_owned(), previous.into());
    }
    Ok(value.to_string() + "\n")
}

/// The digest that the next line carries; without the line end.
pub(in crate::harness) fn link(line: &str) -> String {
    Digest::of(line.trim_end_matches('\n').as_bytes()).to_string()
}

/// A record from a line that follows a line with the digest `previous`.
pub(in crate::harness) fn decode<T: DeserializeOwned>(
    line: &str,
    previous: &str,
) -> Result<T, String> {
    let value: Value =
        serde_json::from_str(line).map_err(|e| format!("the line is no JSON: {e}"))?;
    if value.get(PREVIOUS).and_then(Value::as_str) != Some(previous) {
        return Err("the line does not continue the line before it: a line was changed, lost or \
                    moved"
            .to_owned());
    }
    serde_json::from_value(value).map_err(|e| format!("the line is no such record: {e}"))
}
