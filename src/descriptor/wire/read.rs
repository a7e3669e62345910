//! Reading: strict keys and types, then the consistency of [`Descriptor::validate`].

use super::SCHEMA_VERSION;
use crate::descriptor::config::Fields;
use crate::descriptor::{
    Attention, Descriptor, DescriptorError, GatedDeltaNet, Refusal, Role, Rope, RopeScaling,
    RowPattern, Scope, View, Word,
};
use crate::units::{JsonNode, JsonValue, nearest, parse_json};
use std::path::Path;

type Result<T> = std::result::Result<T, Box<Refusal>>;

/// Largest file accepted.
const LIMIT_BYTES: u64 = 16 << 20;

impl Descriptor {
    /// Reads canonical JSON; `file` names it in messages.
    ///
    /// # Errors
    /// A syntax error, an unknown or missing key, a wrong type, or an inconsistency, each with its
    /// line and key.
    pub fn from_json(file: &str, bytes: &[u8]) -> std::result::Result<Descriptor, DescriptorError> {
        Ok(read(file, bytes)?)
    }

    /// Reads a descriptor file.
    ///
    /// # Errors
    /// As [`Descriptor::from_json`], or the file cannot be read.
    pub fn read(path: &Path) -> std::result::Result<Descriptor, DescriptorError> {
        let bytes = crate::descriptor::source::read_limited(path, LIMIT_BYTES)?;
        Descriptor::from_json(&path.display().to_string(), &bytes)
    }
}

fn read(file: &str, bytes: &[u8]) -> Result<Descriptor> {
    let node = parse_json(bytes).map_err(|e| Refusal::of_syntax(file, e))?;
    let f = Fields::of(file, &node)?;
    let version = f.present("schema_version")?;
    if version.as_u64() != Some(SCHEMA_VERSION) {
        return Err(f
            .expected("schema_version", version, &SCHEMA_VERSION.to_string())
            .help("write it again with `assay model descriptor`"));
    }
    let descriptor = Descriptor {
        family: text(&f, "family")?,
        hidden: count(&f, "hidden")?,
        vocab: count(&f, "vocab")?,
        max_position_tokens: count(&f, "max_position_tokens")?,
        layer_mixers: words(&f, "layer_mixers")?,
        layer_ffns: words(&f, "layer_ffns")?,
        norm_style: word(&f, "norm_style")?,
        norm_epsilon: real(&f, "norm_epsilon")?,
        attention: group(&f, ATTENTION, attention)?,
        gdn: group(&f, GDN, gdn)?,
        intermediate: f
            .present("intermediate")
            .and_then(|node| (!node.is_null()).then(|| count(&f, "intermediate")).transpose())?,
        end_tokens: end_tokens(&f)?,
        roles: roles(&f)?,
    };
    f.finish_strict()?;
    descriptor.validate().map_err(|e| {
        let place = place_of(&node, &e.key);
        let mut refusal = Refusal::of_file(file, e.problem);
        refusal.position = Some(place.position);
        refusal.key = Some(e.key);
        refusal
    })?;
    Ok(descriptor)
}

const ATTENTION: &[&str] = &[
    "query_heads",
    "kv_heads",
    "head_dim",
    "qk_norm",
    "output_gate",
    "rope_convention",
    "rope_theta",
    "rotary_dim",
    "rope_scaling",
];

const GDN: &[&str] =
    &["gdn_key_heads", "gdn_value_heads", "gdn_key_dim", "gdn_value_dim", "gdn_conv_width"];

/// The fields of one kind: all null, or all given.
fn group<T>(
    f: &Fields<'_>,
    keys: &'static [&'static str],
    read: impl Fn(&Fields<'_>) -> Result<T>,
) -> Result<Option<T>> {
    let nulls =
        keys.iter().map(|key| Ok(f.present(key)?.is_null())).collect::<Result<Vec<bool>>>()?;
    let given = nulls.iter().position(|null| !null);
    let null = nulls.iter().position(|null| *null);
    match (given, null) {
        (None, _) => Ok(None),
        (Some(_), None) => read(f).map(Some),
        (Some(given), Some(null)) => Err(f.refuse(
            keys[null],
            format!("expected a value, as `{}` has one, found null", keys[given]),
        )),
    }
}

fn attention(f: &Fields<'_>) -> Result<Attention> {
    Ok(Attention {
        query_heads: count(f, "query_heads")?,
        kv_heads: count(f, "kv_heads")?,
        head_dim: count(f, "head_dim")?,
        qk_norm: flag(f, "qk_norm")?,
        output_gate: word(f, "output_gate")?,
        rope: Rope {
            convention: word(f, "rope_convention")?,
            theta: real(f, "rope_theta")?,
            rotary_dim: count(f, "rotary_dim")?,
            scaling: scaling(f)?,
        },
    })
}

fn scaling(f: &Fields<'_>) -> Result<RopeScaling> {
    let inner = f.object("rope_scaling")?.ok_or_else(|| f.missing("rope_scaling", "an object"))?;
    let kind = inner.present("kind")?;
    let scaling = match kind.as_str() {
        Some("none") => RopeScaling::None {},
        Some("llama3") => RopeScaling::Llama3 {
            factor: real(&inner, "factor")?,
            low_freq_factor: real(&inner, "low_freq_factor")?,
            high_freq_factor: real(&inner, "high_freq_factor")?,
            original_max_position_tokens: count(&inner, "original_max_position_tokens")?,
        },
        _ => return Err(inner.expected("kind", kind, "\"none\" or \"llama3\"")),
    };
    inner.finish_strict()?;
    Ok(scaling)
}

fn gdn(f: &Fields<'_>) -> Result<GatedDeltaNet> {
    Ok(GatedDeltaNet {
        key_heads: count(f, "gdn_key_heads")?,
        value_heads: count(f, "gdn_value_heads")?,
        key_dim: count(f, "gdn_key_dim")?,
        value_dim: count(f, "gdn_value_dim")?,
        conv_width: count(f, "gdn_conv_width")?,
    })
}

fn end_tokens(f: &Fields<'_>) -> Result<Vec<u32>> {
    let id = |node: &JsonNode| {
        node.as_u64()
            .and_then(|id| u32::try_from(id).ok())
            .ok_or_else(|| f.expected_at(node, "end_tokens", "token ids"))
    };
    list(f, "end_tokens")?.iter().map(id).collect()
}

fn roles(f: &Fields<'_>) -> Result<Vec<Role>> {
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

fn text(f: &Fields<'_>, key: &'static str) -> Result<String> {
    let node = f.present(key)?;
    node.as_str().map(str::to_owned).ok_or_else(|| f.expected(key, node, "a text"))
}

fn flag(f: &Fields<'_>, key: &'static str) -> Result<bool> {
    let node = f.present(key)?;
    node.as_bool().ok_or_else(|| f.expected(key, node, "true or false"))
}

fn count(f: &Fields<'_>, key: &'static str) -> Result<usize> {
    let node = f.present(key)?;
    node.as_u64()
        .and_then(|n| usize::try_from(n).ok())
        .filter(|n| *n > 0)
        .ok_or_else(|| f.expected(key, node, "a positive integer"))
}

fn real(f: &Fields<'_>, key: &'static str) -> Result<f64> {
    let node = f.present(key)?;
    node.as_f64().filter(|r| *r > 0.0).ok_or_else(|| f.expected(key, node, "a positive number"))
}

fn list<'a>(f: &Fields<'a>, key: &'static str) -> Result<&'a [JsonNode]> {
    let node = f.present(key)?;
    match &node.value {
        JsonValue::List(items) => Ok(items),
        _ => Err(f.expected(key, node, "a list")),
    }
}

fn word<T: Word>(f: &Fields<'_>, key: &'static str) -> Result<T> {
    word_of(f, key, f.present(key)?)
}

fn words<T: Word>(f: &Fields<'_>, key: &'static str) -> Result<Vec<T>> {
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

/// Where an inconsistent key stands: `roles.NAME.field` in its role, others at the top.
fn place_of<'n>(node: &'n JsonNode, key: &str) -> &'n JsonNode {
    let mut parts = key.split('.');
    let top = parts.next().and_then(|key| node.get(key)).map_or(node, |m| &m.node);
    let (Some(name), JsonValue::List(roles)) = (parts.next(), &top.value) else { return top };
    let named = |role: &&JsonNode| role.get("name").is_some_and(|m| m.node.as_str() == Some(name));
    let role = roles.iter().find(named).unwrap_or(top);
    parts.next().and_then(|field| role.get(field)).map_or(role, |m| &m.node)
}
