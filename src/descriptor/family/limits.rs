//! What the engine implements one value of, whatever the family.

use super::table::{Family, Window};
use crate::descriptor::Refusal;
use crate::descriptor::config::{Fields, Only, agreed};

type Result<T> = std::result::Result<T, Box<Refusal>>;

/// Fields that only ever may say one thing.
pub(super) const ONLY_EVERYWHERE: &[(&str, Only)] = &[
    ("hidden_act", Only::Text(&["silu"])),
    ("attention_bias", Only::Flag(false)),
    ("quantization_config", Only::Absent),
    ("compression_config", Only::Absent),
    ("auto_map", Only::Absent),
];

/// The element type, under all its spellings: BF16, or FP32 weights to round to it.
pub(super) fn check_dtype(outer: &Fields<'_>, text: &Fields<'_>) -> Result<()> {
    let places = [(text, "dtype"), (text, "torch_dtype"), (outer, "dtype"), (outer, "torch_dtype")];
    if let Some((fields, key, node)) = agreed(&places)?
        && !node.as_str().is_some_and(|t| ["bfloat16", "float32"].contains(&t))
    {
        return Err(fields.expected(key, node, "\"bfloat16\" or \"float32\""));
    }
    Ok(())
}

/// The sliding window: active unless it is null or `use_sliding_window` switches it off.
pub(super) fn read_window(family: &Family, text: &Fields<'_>) -> Result<Option<usize>> {
    const KEY: &str = "sliding_window";
    let used = text.optional_flag("use_sliding_window")?;
    if let Window::Every { absent } = family.window {
        if used == Some(false) {
            return Ok(text.optional_count(KEY)?.and(None));
        }
        return match text.present(KEY) {
            Ok(node) if node.is_null() => Ok(None),
            Ok(_) => text.optional_count(KEY),
            Err(_) => Ok(absent),
        };
    }
    match (text.get(KEY), used) {
        (Some(node), None | Some(true)) => {
            Err(text.expected(KEY, node, "null: a window is not implemented"))
        }
        (None, Some(true)) => {
            Err(text.refuse("use_sliding_window", "expected false: not implemented".into()))
        }
        _ => Ok(None),
    }
}
