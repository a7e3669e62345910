//! Reading: strict keys and types, then the consistency of [`Descriptor::validate`].

use super::SCHEMA_VERSION;
use super::read_roles::roles;
use super::values::{count, flag, list, real, text, word, words};
use crate::descriptor::config::Fields;
use crate::descriptor::{
    Attention, Descriptor, DescriptorError, GatedDeltaNet, Refusal, Rope, RopeScaling,
};
use crate::units::{JsonNode, JsonValue, parse_json};
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

/// Where an inconsistent key stands: `roles.NAME.field` in its role, others at the top.
fn place_of<'n>(node: &'n JsonNode, key: &str) -> &'n JsonNode {
    let mut parts = key.split('.');
    let top = parts.next().and_then(|key| node.get(key)).map_or(node, |m| &m.node);
    let (Some(name), JsonValue::List(roles)) = (parts.next(), &top.value) else { return top };
    let named = |role: &&JsonNode| role.get("name").is_some_and(|m| m.node.as_str() == Some(name));
    let role = roles.iter().find(named).unwrap_or(top);
    parts.next().and_then(|field| role.get(field)).map_or(role, |m| &m.node)
}
