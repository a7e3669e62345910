//! Whether the output head shares the embedding's weight.

use super::TensorIndex;
use super::table::Family;
use crate::descriptor::Refusal;
use crate::descriptor::config::{Fields, agreed};

type Result<T> = std::result::Result<T, Box<Refusal>>;

/// Whether the output head is the embedding, checked against the weights.
pub(super) fn read_tie(
    family: &Family,
    outer: &Fields<'_>,
    inner: Option<&Fields<'_>>,
    tensors: Option<&TensorIndex>,
) -> Result<bool> {
    const KEY: &str = "tie_word_embeddings";
    let mut places = vec![(outer, KEY)];
    places.extend(inner.map(|inner| (inner, KEY)));
    let found = agreed(&places)?;
    let tied = match found {
        Some((fields, key, _)) => fields.optional_flag(key)?.unwrap_or(family.default_tied),
        None => family.default_tied,
    };
    let (fields, said) = match found {
        Some((fields, _, node)) => (fields, format!("found {node}")),
        None => (outer, format!("found it absent, which means {tied}")),
    };
    match tensors.map(|index| (index.has_head(), &index.file)) {
        // A head beside an outer flag may be a copy of the embedding, as published Qwen3 files have
        // it; loading compares the two. An inner flag alone is too weak a statement for that.
        Some((true, file)) if tied && outer.get(KEY).is_none() => {
            let problem = format!("expected false, because {file} has `lm_head.weight`; {said}");
            Err(fields.refuse(KEY, problem))
        }
        Some((false, file)) if !tied => {
            let problem = format!("expected true, because {file} has no `lm_head.weight`; {said}");
            Err(fields.refuse(KEY, problem))
        }
        // Only the outer flag counts in published nested configs: an inner one alone needs the
        // weights to bear it out.
        None if tied && inner.is_some() && outer.get(KEY).is_none() => {
            let problem = "expected it beside `text_config`, found it inside only".to_owned();
            Err(fields.refuse(KEY, problem).help("state it at the outer level"))
        }
        _ => Ok(tied),
    }
}
