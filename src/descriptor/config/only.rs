//! Fields of which the engine implements one value.

use super::Fields;
use crate::descriptor::Refusal;
use crate::units::JsonValue;

/// What a field may say, if it is given at all.
#[derive(Clone, Copy, Debug)]
pub(in crate::descriptor) enum Only {
    Flag(bool),
    /// One of these texts.
    Text(&'static [&'static str]),
    EmptyList,
    /// This number.
    Count(u64),
    /// Nothing but null.
    Absent,
}

impl Only {
    /// Refuses a field that says anything else.
    pub(in crate::descriptor) fn check(
        self,
        fields: &Fields<'_>,
        key: &'static str,
    ) -> Result<(), Box<Refusal>> {
        let Some(node) = fields.get(key) else { return Ok(()) };
        let accepted = match self {
            Only::Flag(flag) => node.as_bool() == Some(flag),
            Only::Text(texts) => node.as_str().is_some_and(|t| texts.contains(&t)),
            Only::Count(count) => node.as_u64() == Some(count),
            Only::EmptyList => matches!(&node.value, JsonValue::List(items) if items.is_empty()),
            Only::Absent => false,
        };
        if accepted {
            return Ok(());
        }
        let expected = match self {
            Only::Flag(flag) => flag.to_string(),
            Only::Text(texts) => {
                texts.iter().map(|t| format!("\"{t}\"")).collect::<Vec<_>>().join(" or ")
            }
            Only::Count(count) => count.to_string(),
            Only::EmptyList => "[]".to_owned(),
            Only::Absent => "null".to_owned(),
        };
        Err(fields
            .refuse(key, format!("expected {expected}, found {node}: nothing else is implemented")))
    }
}
