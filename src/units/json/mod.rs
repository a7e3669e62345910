//! Strict JSON whose every value knows its line and column.
//!
//! `serde_json` keeps neither positions nor duplicate keys, and a message about a model's
//! `config.json` needs both. The accepted language is RFC 8259 and nothing else (no comments, no
//! `NaN`), with unique keys, bounded depth, and numbers kept as they are spelt so that no integer
//! loses digits.

mod node;
mod parse;
mod spelling;

pub use node::{JsonMember, JsonNode, JsonValue, Position};
pub use parse::{JsonError, parse_json};
pub use spelling::nearest;
