//! Dimensions and layer kinds.

use super::derive::LAYER_LIMIT;
use super::experts::read_ffns;
use super::limits::{SLIDING, read_window};
use super::table::{Family, HeadDim, Latent, Mixers};
use crate::descriptor::config::{Fields, read_rope};
use crate::descriptor::{Attention, Descriptor, Ffn, GatedDeltaNet, Mixer, Mla, Refusal};
use crate::units::JsonNode;

type Result<T> = std::result::Result<T, Box<Refusal>>;

/// Everything but end tokens and roles, which are left empty.
pub(super) fn read_dimensions(family: &Family, text: &Fields<'_>) -> Result<Descriptor> {
    let hidden = text.count("hidden_size")?;
    let layers = text.count_up_to("num_hidden_layers", LAYER_LIMIT)?;
    let window = read_window(family, text, layers)?;
    let (layer_mixers, gdn) = read_mixers(family, text, layers, window)?;
    let (attention, mla) = match &family.mixers {
        Mixers::Latent(keys) => (None, Some(read_mla(keys, family, text)?)),
        _ => (Some(read_attention(family, text, hidden, window)?), None),
    };
    let (layer_ffns, moe) = read_ffns(family.experts.as_ref(), text, layers)?;
    let intermediate = match layer_ffns.contains(&Ffn::Dense) {
        true => Some(text.count("intermediate_size")?),
        // What nobody reads may still be given.
        false => text.optional_count("intermediate_size")?.and(None),
    };
    let attends = layer_mixers.contains(&Mixer::FullAttention);
    Ok(Descriptor {
        family: family.name.to_owned(),
        hidden,
        vocab: text.count("vocab_size")?,
        max_position_tokens: text.count_up_to("max_position_embeddings", 1 << 31)?,
        gdn: gdn.filter(|_| layer_mixers.contains(&Mixer::Gdn)),
        attention: attention.filter(|_| attends),
        mla,
        layer_mixers,
        layer_ffns,
        norm_style: family.norm_style,
        norm_epsilon: text.real("rms_norm_eps")?,
        intermediate,
        moe,
        end_tokens: Vec::new(),
        roles: Vec::new(),
    })
}

fn read_attention(
    family: &Family,
    text: &Fields<'_>,
    hidden: usize,
    window: Option<usize>,
) -> Result<Attention> {
    let query_heads = text.count("num_attention_heads")?;
    if !family.may_omit_kv_heads {
        text.given_or_null("num_key_value_heads")?;
    }
    let kv_heads = text.optional_count("num_key_value_heads")?.unwrap_or(query_heads);
    if !query_heads.is_multiple_of(kv_heads) {
        let problem = format!(
            "expected a divisor of `num_attention_heads` ({query_heads}), found {kv_heads}"
        );
        return Err(text.refuse("num_key_value_heads", problem));
    }
    let head_dim = match (text.optional_count("head_dim")?, family.head_dim) {
        (Some(head_dim), _) => head_dim,
        (None, HeadDim::Default(head_dim)) => head_dim,
        (None, HeadDim::Required) => return Err(text.missing("head_dim", "an integer")),
        (None, HeadDim::HiddenOverHeads) if hidden.is_multiple_of(query_heads) => {
            hidden / query_heads
        }
        (None, HeadDim::HiddenOverHeads) => {
            let problem = format!(
                "expected it given, because `hidden_size` ({hidden}) is no multiple of \
                 `num_attention_heads` ({query_heads})"
            );
            return Err(text.refuse("head_dim", problem));
        }
    };
    Ok(Attention {
        query_heads,
        kv_heads,
        head_dim,
        qk_norm: family.qk_norm,
        qkv_bias: family.qkv_bias,
        output_gate: family.output_gate,
        window,
        rope: read_rope(text, &family.rope, head_dim)?,
    })
}

fn read_mla(keys: &Latent, family: &Family, text: &Fields<'_>) -> Result<Mla> {
    let heads = text.count("num_attention_heads")?;
    let agrees = |key: &'static str, value: usize| match text.optional_count(key)? {
        Some(found) if found != value => {
            Err(text.refuse(key, format!("expected {value}, found {found}")))
        }
        _ => Ok(()),
    };
    let rope_dim = text.count(keys.rope)?;
    let nope_dim = text.count(keys.nope)?;
    // Every head has keys of its own, expanded from the latent.
    agrees("num_key_value_heads", heads)?;
    agrees("head_dim", rope_dim)?;
    agrees("qk_head_dim", nope_dim + rope_dim)?;
    Ok(Mla {
        heads,
        // Null where queries are not compressed; published implementations take a rank where it is absent.
        query_rank: text
            .given_or_null(keys.query_rank)
            .and_then(|()| text.optional_count(keys.query_rank))?,
        latent_dim: text.count(keys.latent)?,
        nope_dim,
        value_dim: text.count(keys.value)?,
        rope: read_rope(text, &family.rope, rope_dim)?,
    })
}

/// Layer kinds from `layer_types`, or from `full_attention_interval`; both must agree.
fn read_mixers(
    family: &Family,
    text: &Fields<'_>,
    layers: usize,
    window: Option<usize>,
) -> Result<(Vec<Mixer>, Option<GatedDeltaNet>)> {
    const TYPES: &str = "layer_types";
    if matches!(family.mixers, Mixers::Latent(_)) {
        return Ok((vec![Mixer::Mla; layers], None));
    }
    let listed = text.optional_list(TYPES)?;
    if let Some(items) = listed
        && items.len() != layers
    {
        let problem =
            format!("expected {layers} entries (`num_hidden_layers`), found {}", items.len());
        return Err(text.refuse(TYPES, problem));
    }
    let hybrid = matches!(family.mixers, Mixers::Hybrid(_));
    let kind_of = |node: &JsonNode| match node.as_str() {
        Some("full_attention") if window.is_none() || hybrid => Ok(Mixer::FullAttention),
        Some(SLIDING) if window.is_some() => Ok(Mixer::FullAttention),
        Some("linear_attention") if hybrid => Ok(Mixer::Gdn),
        _ => {
            let kinds = match window {
                _ if hybrid => "full_attention or linear_attention",
                Some(_) => SLIDING,
                None => "full_attention",
            };
            Err(text.expected(TYPES, node, kinds))
        }
    };
    let listed: Option<Vec<Mixer>> =
        listed.map(|items| items.iter().map(kind_of).collect()).transpose()?;
    let Mixers::Hybrid(gdn) = &family.mixers else {
        return Ok((listed.unwrap_or_else(|| vec![Mixer::FullAttention; layers]), None));
    };
    let interval = text.optional_count("full_attention_interval")?;
    let periodic = interval.map(|every| {
        let kind = |l: usize| {
            if (l + 1).is_multiple_of(every) { Mixer::FullAttention } else { Mixer::Gdn }
        };
        (0..layers).map(kind).collect::<Vec<_>>()
    });
    let mixers = match (listed, periodic) {
        (Some(listed), Some(periodic)) if listed != periodic => {
            let problem = format!(
                "expected full attention in every layer that `full_attention_interval` ({}) \
                 names and in no other, found it otherwise",
                interval.unwrap_or_default()
            );
            return Err(text.refuse(TYPES, problem));
        }
        (Some(mixers), _) | (None, Some(mixers)) => mixers,
        (None, None) => {
            return Err(text.missing(TYPES, "a list, or `full_attention_interval`"));
        }
    };
    let key_heads = text.count(gdn.key_heads)?;
    let value_heads = text.count(gdn.value_heads)?;
    if !value_heads.is_multiple_of(key_heads) {
        let problem = format!(
            "expected a multiple of `{}` ({key_heads}), found {value_heads}",
            gdn.key_heads
        );
        return Err(text.refuse(gdn.value_heads, problem));
    }
    let gdn = GatedDeltaNet {
        key_heads,
        value_heads,
        key_dim: text.count(gdn.key_dim)?,
        value_dim: text.count(gdn.value_dim)?,
        conv_width: text.count(gdn.conv_width)?,
    };
    Ok((mixers, Some(gdn)))
}
