//! What the engine implements one value of, whatever the family.

use super::experts::optional_natural;
use super::table::{Family, Window};
use crate::descriptor::Refusal;
use crate::descriptor::config::{Fields, Only, agreed};
use crate::units::JsonNode;

type Result<T> = std::result::Result<T, Box<Refusal>>;

/// A layer of full attention within a window, among `layer_types`.
pub(super) const SLIDING: &str = "sliding_attention";

/// Fields that only ever may say one thing.
pub(super) const ONLY_EVERYWHERE: &[(&str, Only)] = &[
    // Two names of one function.
    ("hidden_act", Only::Text(&["silu", "swish"])),
    ("attention_bias", Only::Flag(false)),
    ("quantization_config", Only::Absent),
    ("compression_config", Only::Absent),
    ("auto_map", Only::Absent),
];

/// The type that weights were saved in, under both its spellings: a note, since every tensor says its own
/// and the policy says what activations are. Saving a nested model leaves its levels with different ones.
pub(super) fn check_dtype(level: &Fields<'_>) -> Result<()> {
    const TYPES: [&str; 3] = ["bfloat16", "float32", "float16"];
    if let Some((fields, key, node)) = agreed(&[(level, "dtype"), (level, "torch_dtype")])?
        && !node.as_str().is_some_and(|t| TYPES.contains(&t))
    {
        return Err(fields.expected(key, node, "\"bfloat16\", \"float32\" or \"float16\""));
    }
    Ok(())
}

const WINDOW: &str = "sliding_window";

/// The sliding window of all layers, if they have one.
///
/// # Errors
/// A window in some of the layers, or in a family that has none.
pub(super) fn read_window(
    family: &Family,
    text: &Fields<'_>,
    layers: usize,
) -> Result<Option<usize>> {
    let used = text.optional_flag("use_sliding_window")?;
    match family.window {
        Window::None => match (text.get(WINDOW), used) {
            (Some(node), None | Some(true)) => {
                Err(text.expected(WINDOW, node, "null: a window is not implemented"))
            }
            (None, Some(true)) => {
                Err(text.refuse("use_sliding_window", "expected false: not implemented".into()))
            }
            _ => Ok(None),
        },
        Window::Every { .. } if used == Some(false) => Ok(text.optional_count(WINDOW)?.and(None)),
        Window::Every { absent } => match text.present(WINDOW) {
            Ok(node) if node.is_null() => Ok(None),
            Ok(_) => text.optional_count(WINDOW),
            Err(_) => Ok(absent),
        },
        Window::Switched { from_layer } => {
            let window = text.optional_count(WINDOW)?;
            if used != Some(true) {
                return Ok(None);
            }
            Ok(match windowed(text, from_layer, layers)? {
                true => window,
                false => None,
            })
        }
    }
}

/// Whether all layers have the window that is switched on, or none.
fn windowed(text: &Fields<'_>, from_layer: Option<usize>, layers: usize) -> Result<bool> {
    const FROM: &str = "max_window_layers";
    let Some(default) = from_layer else { return Ok(true) };
    let (key, windowed) = match text.optional_list("layer_types")? {
        Some(kinds) => {
            let is_window = |k: &&JsonNode| k.as_str() == Some(SLIDING);
            ("layer_types", kinds.iter().filter(is_window).count())
        }
        None => {
            let from = optional_natural(text, FROM)?.unwrap_or(default);
            (FROM, layers - from.min(layers))
        }
    };
    match windowed {
        0 => Ok(false),
        all if all == layers => Ok(true),
        some => {
            let problem = format!(
                "expected the window in all layers or in none, found it in {some} of {layers}: \
                 not implemented"
            );
            Err(text.refuse(key, problem))
        }
    }
}
