//! The one place that knows the YAML library: strict reading, and its errors as [`Diagnostic`]s.
//!
//! Strict means: no unknown or duplicate keys, no merge keys, `true`/`false` are the only
//! booleans, one document, bounded size, depth and alias expansion.

use super::Diagnostic;
use super::diagnostic::did_you_mean;
use serde::de::DeserializeSeed;
use serde_yaml::budget::BudgetBreach;
use serde_yaml::{DuplicateKeyPolicy, Error, Location, MergeKeyPolicy, Options, Spanned};
use std::fs::File;
use std::io::Read as _;
use std::path::Path;

/// Larger spec files are refused.
pub(super) const FILE_LIMIT_BYTES: u64 = 1 << 20;

/// A value with the 1-based line and column it was read from; only for YAML.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::harness) struct Located<T> {
    pub(in crate::harness) value: T,
    pub(in crate::harness) line: usize,
    pub(in crate::harness) column: usize,
}

impl<'de, T: serde::Deserialize<'de>> serde::Deserialize<'de> for Located<T> {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Located<T>, D::Error> {
        let spanned = Spanned::<T>::deserialize(deserializer)?;
        let (line, column) = position(&spanned.referenced).unwrap_or((1, 1));
        Ok(Located { value: spanned.value, line, column })
    }
}

/// Reads a spec file.
///
/// # Errors
/// It cannot be read, is larger than a mebibyte, or is not UTF-8.
pub(in crate::harness) fn read(path: &Path) -> Result<String, Diagnostic> {
    let io = |e: std::io::Error| Diagnostic::new(path, format!("cannot be read: {e}"));
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(io)?;
    file.take(FILE_LIMIT_BYTES + 1).read_to_end(&mut bytes).map_err(io)?;
    if bytes.len() as u64 > FILE_LIMIT_BYTES {
        let message = format!("the file is larger than the limit of {FILE_LIMIT_BYTES} bytes");
        return Err(Diagnostic::new(path, message));
    }
    String::from_utf8(bytes).map_err(|e| {
        let at = e.utf8_error().valid_up_to();
        Diagnostic::new(path, format!("the file is not UTF-8: byte {at} starts no character"))
    })
}

/// Reads a value strictly from YAML text; `path` is for messages.
///
/// # Errors
/// A [`Diagnostic`] that points at the place.
pub fn parse<T: serde::de::DeserializeOwned>(path: &Path, text: &str) -> Result<T, Diagnostic> {
    parse_seed(path, text, std::marker::PhantomData)
}

/// As [`parse`], with a seed.
pub(super) fn parse_seed<'de, S: DeserializeSeed<'de>>(
    path: &Path,
    text: &'de str,
    seed: S,
) -> Result<S::Value, Diagnostic> {
    serde_yaml::with_deserializer_from_str_with_options(text, options(), |d| seed.deserialize(d))
        .map_err(|e| explain(path, text, e.without_snippet()))
}

/// Reads a value typed on the command line (`--set key=value`).
///
/// # Errors
/// A sentence about the text.
pub(in crate::harness) fn parse_argument(text: &str) -> Result<serde_json::Value, String> {
    serde_yaml::from_str_with_options(text, options())
        .map_err(|e| format!("`{text}` is no YAML value: {}", e.without_snippet()))
}

fn options() -> Options {
    serde_yaml::options! {
        budget: serde_yaml::budget! {
            max_documents: 1,
            max_depth: 32,
            max_nodes: 100_000,
            max_events: 250_000,
            max_aliases: 1_000,
            max_anchors: 100,
        },
        alias_limits: serde_yaml::alias_limits! {
            max_total_replayed_events: 20_000,
            max_replay_stack_depth: 8,
        },
        duplicate_keys: DuplicateKeyPolicy::Error,
        merge_keys: MergeKeyPolicy::Error,
        strict_booleans: true,
        reject_unsupported_tags: true,
        with_snippet: false,
    }
}

fn position(location: &Location) -> Option<(usize, usize)> {
    let (line, column) = (location.line() as usize, location.column() as usize);
    (line > 0 && column > 0).then_some((line, column))
}

fn explain(path: &Path, text: &str, error: &Error) -> Diagnostic {
    if let Error::AliasError { error, .. } = error {
        return explain(path, text, error);
    }
    let list = |names: &[&str]| {
        let quoted: Vec<String> = names.iter().map(|n| format!("`{n}`")).collect();
        if names.len() == 1 { quoted.concat() } else { format!("one of {}", quoted.join(", ")) }
    };
    let mut diagnostic = match error {
        Error::SerdeUnknownField { field, expected, .. } => {
            unknown_key(path, field, expected).expected(list(expected))
        }
        Error::SerdeUnknownVariant { variant, expected, .. } => {
            Diagnostic::new(path, format!("unknown value `{variant}`"))
                .expected(list(expected))
                .help(did_you_mean(variant, expected.iter().copied()))
        }
        Error::SerdeMissingField { field, .. } => {
            Diagnostic::new(path, format!("the key `{field}` is missing"))
        }
        Error::SerdeInvalidType { unexpected, expected, .. }
        | Error::SerdeInvalidValue { unexpected, expected, .. } => {
            let kind = matches!(error, Error::SerdeInvalidType { .. });
            let message = if kind { "wrong type" } else { "value not allowed" };
            let found = unexpected.strip_prefix("string ").map(|text| format!("the text {text}"));
            let mut diagnostic = Diagnostic::new(path, message).expected(expected);
            diagnostic.found = Some(found.unwrap_or_else(|| unexpected.clone()));
            diagnostic
        }
        Error::NonFiniteFloat { value, .. } => {
            let mut diagnostic =
                Diagnostic::new(path, "value not allowed").expected("a finite number");
            diagnostic.found = Some(format!("`{value}`"));
            diagnostic
        }
        Error::Budget { breach: BudgetBreach::Documents { .. }, .. } => {
            Diagnostic::new(path, "a spec file holds one document; remove the `---`")
        }
        Error::SerdeInvalidLength { len, expected, .. } => {
            let mut diagnostic = Diagnostic::new(path, "wrong number of items").expected(expected);
            diagnostic.found = Some(format!("{len} items"));
            diagnostic
        }
        Error::DuplicateMappingKey { key, .. } => {
            let key = key.as_ref().map_or_else(|| "a key".to_owned(), |k| format!("`{k}`"));
            Diagnostic::new(path, format!("the key {key} appears twice"))
        }
        Error::InvalidScalar { ty, .. } => {
            Diagnostic::new(path, "wrong type").expected(described(ty))
        }
        Error::InvalidBooleanStrict { .. } => {
            Diagnostic::new(path, "wrong type").expected("`true` or `false`")
        }
        Error::Unexpected { expected, .. } => {
            Diagnostic::new(path, "wrong type").expected(described(expected))
        }
        Error::NullIntoString { .. } => Diagnostic::new(path, "wrong type").expected("text"),
        Error::MergeKeyNotAllowed { .. } => {
            Diagnostic::new(path, "merge keys (`<<`) are not allowed; write the keys out")
        }
        Error::Budget { .. }
        | Error::AliasReplayLimitExceeded { .. }
        | Error::AliasReplayStackDepthExceeded { .. }
        | Error::AliasExpansionLimitExceeded { .. } => {
            Diagnostic::new(path, "the file is larger than a spec may be once aliases are expanded")
                .help(Some(error.to_string()))
        }
        Error::Eof { .. } => Diagnostic::new(path, "the file is empty or ends too early"),
        Error::MultipleDocuments { .. } => {
            Diagnostic::new(path, "a spec file holds one document; remove the `---`")
        }
        Error::Message { msg, .. } => Diagnostic::new(path, msg),
        Error::ExternalMessage { msg, .. } => Diagnostic::new(path, format!("not YAML: {msg}")),
        _ => Diagnostic::new(path, error.to_string()),
    };
    if let Some((line, mut column)) = error.location().as_ref().and_then(position) {
        if matches!(error, Error::SerdeInvalidValue { .. } | Error::SerdeInvalidLength { .. }) {
            column = value_column(text, line, column);
        }
        let token = token(text, line, column);
        let missing = matches!(error, Error::SerdeMissingField { .. });
        let length = if missing { 1 } else { token.chars().count() };
        diagnostic = diagnostic.at(text, line, column, length);
        let wants_found = diagnostic.expected.is_some()
            && diagnostic.found.is_none()
            && !matches!(
                error,
                Error::SerdeUnknownField { .. } | Error::SerdeUnknownVariant { .. }
            );
        if wants_found && !token.is_empty() {
            diagnostic.found = Some(format!("`{token}`"));
        }
    }
    diagnostic
}

/// An unknown key; one that lacks its unit is told so.
pub(super) fn unknown_key(path: &Path, field: &str, expected: &[&str]) -> Diagnostic {
    let prefix = format!("{field}_");
    let with_unit = expected.iter().find(|name| {
        let unit = name.strip_prefix(&prefix);
        unit.is_some_and(|u| ["ms", "bytes", "tokens", "nats", "ratio", "percent"].contains(&u))
    });
    match with_unit {
        Some(name) => Diagnostic::new(path, format!("the key `{field}` has no unit"))
            .help(Some(format!("write `{name}`"))),
        None => Diagnostic::new(path, format!("unknown key `{field}`"))
            .help(did_you_mean(field, expected.iter().copied())),
    }
}

/// The library's names of types, in words.
fn described(library_name: &str) -> String {
    let unsigned = |bits: &str| format!("a whole number from 0 to 2^{bits} - 1");
    match library_name {
        "u64" | "usize" => unsigned("64"),
        "u32" => unsigned("32"),
        "u16" => unsigned("16"),
        "u8" => unsigned("8"),
        "f64" | "f32" | "float" | "floating point" => "a number".into(),
        "bool" | "boolean" => "`true` or `false`".into(),
        "string scalar" => "text".into(),
        "mapping start" | "mapping" => "a mapping (`key: value` lines)".into(),
        "sequence start" | "sequence" => "a list".into(),
        other => other.into(),
    }
}

/// The column of the value where a key starts at `column` and its value is on the same line.
fn value_column(text: &str, line: usize, column: usize) -> usize {
    let content = text.lines().nth(line - 1).unwrap_or_default();
    let rest: String = content.chars().skip(column - 1).collect();
    let key = rest.chars().take_while(|c| c.is_alphanumeric() || "_-".contains(*c)).count();
    let after: String = rest.chars().skip(key).collect();
    match after.strip_prefix(": ") {
        Some(value) if key > 0 && !value.trim().is_empty() => {
            column + key + 2 + value.chars().take_while(|c| *c == ' ').count()
        }
        _ => column,
    }
}

/// The scalar or key that starts at a place: up to a delimiter or a comment.
fn token(text: &str, line: usize, column: usize) -> String {
    let content = text.lines().nth(line - 1).unwrap_or_default();
    let rest: String = content.chars().skip(column - 1).collect();
    if let Some(quote) = rest.chars().next().filter(|c| matches!(c, '"' | '\'')) {
        let end = rest[1..].find(quote).map_or(rest.len(), |at| at + 2);
        return rest[..end].to_owned();
    }
    if rest.starts_with(['[', '{']) {
        let mut depth = 0;
        let closes = |c: char| {
            depth += i32::from("[{".contains(c)) - i32::from("]}".contains(c));
            depth == 0
        };
        let end = rest.find(closes).map_or(rest.len(), |at| at + 1);
        return rest[..end].trim_end().to_owned();
    }
    let end = [": ", " #", ",", "]", "}"].iter().filter_map(|d| rest.find(d)).min();
    rest[..end.unwrap_or(rest.len())].trim_end().trim_end_matches(':').to_owned()
}
