//! Reading roles and their views.

use super::values::{list, text, word};
use crate::descriptor::config::Fields;
use crate::descriptor::{Refusal, Role, RowPattern, Scope, View};
use crate::units::{JsonNode, JsonValue};

type Result<T> = std::result::Result<T, Box<Refusal>>;

/// The logical weights, in file order.
pub(super) fn roles(f: &Fields<'_>) -> Result<Vec<Role>> {
    list(f, "roles")?
        .iter()
        .enumerate()
        .map(|(i, node)| role(&f.inner(node, &format!("roles[{i}]"))?))
        .collect()
}

fn role(f: &Fields<'_>) -> Result<Role> {
    let extents = |key: &'static str| {
        let extent = |node: &JsonNode| {
            node.as_u64()
                .and_then(|n| usize::try_from(n).ok())
                .ok_or_else(|| f.expected_at(node, key, "non-negative integers"))
        };
        list(f, key)?.iter().map(extent).collect::<Result<Vec<usize>>>()
    };
    let term = |node: &JsonNode| {
        let text = node.as_str().map(str::to_owned);
        text.ok_or_else(|| f.expected_at(node, "shape_terms", "texts"))
    };
    let tied_to = f.present("tied_to")?;
    let role = Role {
        name: word(f, "name")?,
        scope: match f.present("layers")?.is_null() {
            true => Scope::Model,
            false => Scope::Layers(extents("layers")?),
        },
        shape: extents("shape")?,
        shape_terms: list(f, "shape_terms")?.iter().map(term).collect::<Result<_>>()?,
        views: list(f, "views")?
            .iter()
            .enumerate()
            .map(|(i, node)| view(&f.inner(node, &format!("views[{i}]"))?))
            .collect::<Result<_>>()?,
        shard: word(f, "shard")?,
        tied_to: (!tied_to.is_null()).then(|| word(f, "tied_to")).transpose()?,
    };
    f.finish_strict()?;
    Ok(role)
}

fn view(f: &Fields<'_>) -> Result<View> {
    let rows = f.present("rows")?;
    let rows = match &rows.value {
        JsonValue::Text(text) if text == "all" => RowPattern::All,
        JsonValue::Object(_) => {
            let inner = f.inner(rows, "rows")?;
            let number = |key: &'static str| {
                let node = inner.present(key)?;
                node.as_u64()
                    .and_then(|n| usize::try_from(n).ok())
                    .ok_or_else(|| inner.expected(key, node, "a non-negative integer"))
            };
            let pattern = RowPattern::Blocks {
                start: number("start")?,
                block: number("block")?,
                stride: number("stride")?,
                count: number("count")?,
            };
            inner.finish_strict()?;
            pattern
        }
        _ => return Err(f.expected("rows", rows, "\"all\" or an object of blocks")),
    };
    let view = View { tensor: text(f, "tensor")?, rows };
    f.finish_strict()?;
    Ok(view)
}
