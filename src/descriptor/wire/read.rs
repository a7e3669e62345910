//! Reading: strict keys and types, then the consistency of [`Descriptor::validate`].

use super::SCHEMA_VERSION;
use super::read_roles::roles;
use super::values::{count, flag, list, magnitude, optional_count, real, text, word, words};
use crate::descriptor::config::Fields;
use crate::descriptor::{
    Attention, Descriptor, DescriptorError, GatedDeltaNet, Mla, Moe, Refusal, Rope, RopeScaling,
    Router, SharedExpert,
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
    let rope = group(&f, ROPE, rope)?;
    let needs_rope = |key| f.refuse("rope_theta", format!("expected a value, as `{key}` has one"));
    let descriptor = Descriptor {
        family: text(&f, "family")?,
        hidden: count(&f, "hidden")?,
        vocab: count(&f, "vocab")?,
        max_position_tokens: count(&f, "max_position_tokens")?,
        layer_mixers: words(&f, "layer_mixers")?,
        layer_ffns: words(&f, "layer_ffns")?,
        norm_style: word(&f, "norm_style")?,
        norm_epsilon: real(&f, "norm_epsilon")?,
        attention: match group(&f, ATTENTION, |f| f.present("query_heads").map(drop))? {
            Some(_) => Some(attention(&f, rope.clone().ok_or_else(|| needs_rope("query_heads"))?)?),
            None => absent(&f, "window", "full attention")?,
        },
        mla: match group(&f, MLA, |f| f.present("mla_heads").map(drop))? {
            Some(_) => Some(mla(&f, rope.clone().ok_or_else(|| needs_rope("mla_heads"))?)?),
            None => absent(&f, "mla_query_rank", "multi-head latent attention")?,
        },
        gdn: group(&f, GDN, gdn)?,
        intermediate: optional_count(&f, "intermediate")?,
        moe: moe(&f)?,
        end_tokens: end_tokens(&f)?,
        roles: roles(&f)?,
    };
    f.finish_strict()?;
    if rope.is_some() && descriptor.attention.is_none() && descriptor.mla.is_none() {
        return Err(f.refuse("rope_theta", "expected null without attention".to_owned()));
    }
    descriptor.validate().map_err(|e| {
        let place = place_of(&node, &e.key);
        let mut refusal = Refusal::of_file(file, e.problem);
        refusal.position = Some(place.position);
        refusal.key = Some(e.key);
        refusal
    })?;
    Ok(descriptor)
}

const ATTENTION: &[&str] =
    &["query_heads", "kv_heads", "head_dim", "qk_norm", "qkv_bias", "output_gate"];

const MLA: &[&str] = &["mla_heads", "mla_latent_dim", "mla_nope_dim", "mla_value_dim"];

const ROPE: &[&str] = &["rope_convention", "rope_theta", "rotary_dim", "rope_scaling"];

const GDN: &[&str] =
    &["gdn_key_heads", "gdn_value_heads", "gdn_key_dim", "gdn_value_dim", "gdn_conv_width"];

const MOE: &[&str] = &[
    "moe_experts",
    "moe_experts_per_token",
    "moe_intermediate",
    "router_logits",
    "router_weights",
    "router_renormalises",
    "router_scaling",
    "router_groups",
    "router_groups_kept",
];

const SHARED: &[&str] = &["shared_intermediate", "shared_gate"];

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

/// A field that belongs to a kind that the model does not have.
fn absent<T>(f: &Fields<'_>, key: &'static str, kind: &str) -> Result<Option<T>> {
    match f.present(key)?.is_null() {
        true => Ok(None),
        false => Err(f.refuse(key, format!("expected null without {kind}"))),
    }
}

fn attention(f: &Fields<'_>, rope: Rope) -> Result<Attention> {
    Ok(Attention {
        query_heads: count(f, "query_heads")?,
        kv_heads: count(f, "kv_heads")?,
        head_dim: count(f, "head_dim")?,
        qk_norm: flag(f, "qk_norm")?,
        qkv_bias: flag(f, "qkv_bias")?,
        output_gate: word(f, "output_gate")?,
        window: optional_count(f, "window")?,
        rope,
    })
}

fn mla(f: &Fields<'_>, rope: Rope) -> Result<Mla> {
    Ok(Mla {
        heads: count(f, "mla_heads")?,
        query_rank: optional_count(f, "mla_query_rank")?,
        latent_dim: count(f, "mla_latent_dim")?,
        nope_dim: count(f, "mla_nope_dim")?,
        value_dim: count(f, "mla_value_dim")?,
        rope,
    })
}

fn rope(f: &Fields<'_>) -> Result<Rope> {
    Ok(Rope {
        convention: word(f, "rope_convention")?,
        theta: real(f, "rope_theta")?,
        rotary_dim: count(f, "rotary_dim")?,
        scaling: scaling(f)?,
    })
}

fn scaling(f: &Fields<'_>) -> Result<RopeScaling> {
    let inner = f.object("rope_scaling")?.ok_or_else(|| f.missing("rope_scaling", "an object"))?;
    let kind = inner.present("kind")?;
    let scaling = match kind.as_str() {
        Some("none") => RopeScaling::None {},
        Some("linear") => RopeScaling::Linear { factor: real(&inner, "factor")? },
        Some("llama3") => RopeScaling::Llama3 {
            factor: real(&inner, "factor")?,
            low_freq_factor: real(&inner, "low_freq_factor")?,
            high_freq_factor: real(&inner, "high_freq_factor")?,
            original_max_position_tokens: count(&inner, "original_max_position_tokens")?,
        },
        Some("yarn") => RopeScaling::Yarn {
            factor: real(&inner, "factor")?,
            beta_fast: real(&inner, "beta_fast")?,
            beta_slow: real(&inner, "beta_slow")?,
            mscale: magnitude(&inner, "mscale")?,
            mscale_all_dim: magnitude(&inner, "mscale_all_dim")?,
            original_max_position_tokens: count(&inner, "original_max_position_tokens")?,
        },
        _ => {
            return Err(inner.expected(
                "kind",
                kind,
                "\"none\", \"linear\", \"llama3\" or \"yarn\"",
            ));
        }
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

/// A shared expert belongs to a mixture of experts.
fn moe(f: &Fields<'_>) -> Result<Option<Moe>> {
    let shared = group(f, SHARED, |f| {
        Ok(SharedExpert {
            intermediate: count(f, "shared_intermediate")?,
            gate: word(f, "shared_gate")?,
        })
    })?;
    let moe = group(f, MOE, |f| {
        Ok(Moe {
            experts: count(f, "moe_experts")?,
            experts_per_token: count(f, "moe_experts_per_token")?,
            intermediate: count(f, "moe_intermediate")?,
            router: Router {
                logits: word(f, "router_logits")?,
                weights: word(f, "router_weights")?,
                renormalise: flag(f, "router_renormalises")?,
                scaling: real(f, "router_scaling")?,
                groups: count(f, "router_groups")?,
                groups_kept: count(f, "router_groups_kept")?,
            },
            shared,
        })
    })?;
    if moe.is_none() && shared.is_some() {
        let problem = "expected null without a mixture of experts".to_owned();
        return Err(f.refuse("shared_intermediate", problem));
    }
    Ok(moe)
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
