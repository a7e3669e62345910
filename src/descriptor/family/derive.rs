//! Reads any config by a family's table.

use super::TensorIndex;
use super::dimensions::read_dimensions;
use super::end_tokens::read_end_tokens;
use super::identify::{check_layout, family_of};
use super::limits::{ONLY_EVERYWHERE, check_dtype};
use super::table::Family;
use super::tensors::views;
use super::tie::read_tie;
use crate::descriptor::config::{Fields, IGNORED_EVERYWHERE, Only};
use crate::descriptor::roles::logical_roles;
use crate::descriptor::{Descriptor, Refusal, Role, RoleName};
use crate::units::parse_json;

type Result<T> = std::result::Result<T, Box<Refusal>>;

/// Most layers accepted.
pub(in crate::descriptor) const LAYER_LIMIT: usize = 4096;

/// The files an adapter reads, as bytes; nothing else decides the descriptor.
#[derive(Clone, Copy, Debug)]
pub struct ConfigFiles<'a> {
    /// Name (for messages) and content of `config.json`.
    pub config: (&'a str, &'a [u8]),
    /// The same of `generation_config.json`, if there is one: more end tokens.
    pub generation_config: Option<(&'a str, &'a [u8])>,
    /// The checkpoint's tensor names, if there are weights.
    pub tensors: Option<&'a TensorIndex>,
}

/// Derives the descriptor of a checkpoint.
///
/// # Errors
/// See `docs/models.md`: everything that is contradictory, unknown or not implemented, by name.
pub(in crate::descriptor) fn derive(files: &ConfigFiles<'_>) -> Result<Descriptor> {
    let (file, bytes) = files.config;
    let node = parse_json(bytes).map_err(|e| Refusal::of_syntax(file, e))?;
    let outer = Fields::of(file, &node)?;
    let (family, layout) = family_of(&outer)?;
    let inner = match (layout.nested, outer.object("text_config")?) {
        (true, Some(text)) => Some(text),
        (true, None) => return Err(outer.missing("text_config", "an object")),
        (false, None) => None,
        (false, Some(_)) => {
            let nested = family.layouts.iter().find(|l| l.nested).map(|l| l.model_type);
            let refusal = outer.refuse(
                "text_config",
                format!("expected none beside model_type \"{}\"", layout.model_type),
            );
            return Err(match nested {
                Some(nested) => {
                    refusal.help(format!("nested configs have model_type \"{nested}\""))
                }
                None => refusal,
            });
        }
    };
    let text = inner.as_ref().unwrap_or(&outer);
    check_layout(family, layout, &outer, inner.as_ref())?;
    check_dtype(&outer)?;
    check_dtype(text)?;
    let known = |(key, _): &&(&'static str, Only)| !family.ignored.contains(key);
    for (key, only) in ONLY_EVERYWHERE.iter().filter(known).chain(family.only) {
        only.check(text, key)?;
        if inner.is_some() {
            only.check(&outer, key)?;
        }
    }

    let mut descriptor = read_dimensions(family, text)?;
    descriptor.end_tokens = read_end_tokens(&outer, text, files, descriptor.vocab)?;
    let prefix = match files.tensors {
        Some(index) => index.prefix(layout.prefixes)?,
        None => layout.prefixes[0],
    };
    let tied = read_tie(family, &outer, inner.as_ref(), files.tensors)?;
    outer.finish_beside(
        &[IGNORED_EVERYWHERE, family.ignored, layout.outer_ignored],
        inner.as_ref(),
    )?;
    if inner.is_some() {
        text.finish(&[IGNORED_EVERYWHERE, family.ignored])?;
    }

    descriptor.roles = place_roles(family, prefix, tied, &descriptor, files.tensors);
    descriptor.validate().map_err(|e| Refusal::of_file(file, e.to_string()))?;
    if let Some(index) = files.tensors {
        index.check(&descriptor)?;
    }
    Ok(descriptor)
}

fn place_roles(
    family: &Family,
    prefix: &str,
    tied: bool,
    d: &Descriptor,
    tensors: Option<&TensorIndex>,
) -> Vec<Role> {
    let evaluate = |term: &&str| d.evaluate(term).unwrap_or_default();
    logical_roles(d)
        .into_iter()
        .map(|role| {
            let tied_to = (tied && role.name == RoleName::LmHead).then_some(RoleName::Embed);
            let mut placed = Role {
                name: role.name,
                scope: role.scope,
                shape: role.shape_terms.iter().map(evaluate).collect(),
                shape_terms: role.shape_terms.iter().map(|t| (*t).to_owned()).collect(),
                views: Vec::new(),
                shard: role.shard,
                tied_to,
            };
            if tied_to.is_none() {
                views(family, prefix, d, tensors, &mut placed);
            }
            placed
        })
        .collect()
}
