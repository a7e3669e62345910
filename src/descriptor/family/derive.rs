//! Reads any config by a family's table.

use super::table::{Family, HeadDim, Layout, Mixers};
use super::tensors::tensor_name;
use super::{FAMILIES, TensorIndex};
use crate::descriptor::config::{Fields, IGNORED_EVERYWHERE, Only, agreed, read_rope};
use crate::descriptor::roles::logical_roles;
use crate::descriptor::{
    Attention, Descriptor, Ffn, GatedDeltaNet, Mixer, Refusal, Role, RoleName, RowPattern, Scope,
    View,
};
use crate::units::{JsonNode, nearest, parse_json};

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

/// Fields that only ever may say one thing, whatever the family.
const ONLY_EVERYWHERE: &[(&str, Only)] = &[
    ("hidden_act", Only::Text(&["silu"])),
    ("attention_bias", Only::Flag(false)),
    ("quantization_config", Only::Absent),
    ("compression_config", Only::Absent),
    ("auto_map", Only::Absent),
];

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
    check_dtype(&outer, text)?;
    for (key, only) in ONLY_EVERYWHERE.iter().chain(family.only) {
        only.check(text, key)?;
        if inner.is_some() {
            only.check(&outer, key)?;
        }
    }
    check_window(text)?;

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

    descriptor.roles = place_roles(family, prefix, tied, &descriptor);
    descriptor.validate().map_err(|e| Refusal::of_file(file, e.to_string()))?;
    if let Some(index) = files.tensors {
        index.check(&descriptor)?;
    }
    Ok(descriptor)
}

fn family_of(outer: &Fields<'_>) -> Result<(&'static Family, &'static Layout)> {
    const KEY: &str = "model_type";
    let known = || FAMILIES.iter().flat_map(|f| f.layouts.iter().map(move |l| (*f, l)));
    let names = || known().map(|(_, l)| l.model_type);
    let listed = names().collect::<Vec<_>>().join(", ");
    let Some(found) = outer.optional_text(KEY)? else {
        return Err(outer.missing(KEY, &format!("one of {listed}")));
    };
    known().find(|(_, layout)| layout.model_type == found).ok_or_else(|| {
        let refusal = outer.refuse(KEY, format!("expected one of {listed}, found \"{found}\""));
        match nearest(found, names()) {
            Some(near) => refusal.help(format!("the nearest family is \"{near}\"")),
            None => refusal,
        }
    })
}

/// The model class, and the inner `model_type` of a nested config.
fn check_layout(
    family: &Family,
    layout: &Layout,
    outer: &Fields<'_>,
    inner: Option<&Fields<'_>>,
) -> Result<()> {
    for item in outer.optional_list("architectures")?.unwrap_or_default() {
        if !item.as_str().is_some_and(|a| layout.architectures.contains(&a)) {
            let expected = layout.architectures.join(" or ");
            return Err(outer.expected("architectures", item, &expected));
        }
    }
    let Some(inner) = inner else { return Ok(()) };
    // A published text part may name the class it would have alone.
    _ = inner.get("architectures");
    if let Some(found) = inner.optional_text("model_type")? {
        let mut flat = family.layouts.iter().filter(|l| !l.nested).map(|l| l.model_type);
        if !flat.clone().any(|f| f == found) {
            let expected = flat.next().unwrap_or_default();
            return Err(
                inner.refuse("model_type", format!("expected \"{expected}\", found \"{found}\""))
            );
        }
    }
    Ok(())
}

fn check_dtype(outer: &Fields<'_>, text: &Fields<'_>) -> Result<()> {
    let places = [(text, "dtype"), (text, "torch_dtype"), (outer, "dtype"), (outer, "torch_dtype")];
    if let Some((fields, key, node)) = agreed(&places)? {
        if !node.as_str().is_some_and(|t| ["bfloat16", "float32"].contains(&t)) {
            return Err(fields.expected(key, node, "\"bfloat16\" or \"float32\""));
        }
    }
    Ok(())
}

/// A sliding window is active unless it is null or `use_sliding_window` switches it off.
fn check_window(text: &Fields<'_>) -> Result<()> {
    let used = text.optional_flag("use_sliding_window")?;
    match (text.get("sliding_window"), used) {
        (Some(node), None | Some(true)) => {
            Err(text.expected("sliding_window", node, "null: a window is not implemented"))
        }
        (None, Some(true)) => {
            Err(text.refuse("use_sliding_window", "expected false: not implemented".into()))
        }
        _ => Ok(()),
    }
}

fn read_dimensions(family: &Family, text: &Fields<'_>) -> Result<Descriptor> {
    let hidden = text.count("hidden_size")?;
    let layers = text.count_up_to("num_hidden_layers", LAYER_LIMIT)?;
    let query_heads = text.count("num_attention_heads")?;
    let kv_heads = text.optional_count("num_key_value_heads")?.unwrap_or(query_heads);
    if !query_heads.is_multiple_of(kv_heads) {
        let problem = format!(
            "expected a divisor of `num_attention_heads` ({query_heads}), found {kv_heads}"
        );
        return Err(text.refuse("num_key_value_heads", problem));
    }
    let head_dim = match (text.optional_count("head_dim")?, family.head_dim) {
        (Some(head_dim), _) => head_dim,
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
    let (layer_mixers, gdn) = read_mixers(family, text, layers)?;
    let attention = Attention {
        query_heads,
        kv_heads,
        head_dim,
        qk_norm: family.qk_norm,
        output_gate: family.output_gate,
        rope: read_rope(text, &family.rope, head_dim)?,
    };
    let attends = layer_mixers.contains(&Mixer::FullAttention);
    Ok(Descriptor {
        family: family.name.to_owned(),
        hidden,
        vocab: text.count("vocab_size")?,
        max_position_tokens: text.count_up_to("max_position_embeddings", 1 << 31)?,
        gdn: gdn.filter(|_| layer_mixers.contains(&Mixer::Gdn)),
        attention: attends.then_some(attention),
        layer_mixers,
        layer_ffns: vec![Ffn::Dense; layers],
        norm_style: family.norm_style,
        norm_epsilon: text.real("rms_norm_eps")?,
        intermediate: Some(text.count("intermediate_size")?),
        end_tokens: Vec::new(),
        roles: Vec::new(),
    })
}

/// Layer kinds from `layer_types`, or from `full_attention_interval`; both must agree.
fn read_mixers(
    family: &Family,
    text: &Fields<'_>,
    layers: usize,
) -> Result<(Vec<Mixer>, Option<GatedDeltaNet>)> {
    const TYPES: &str = "layer_types";
    let listed = text.optional_list(TYPES)?;
    if let Some(items) = listed {
        if items.len() != layers {
            let problem =
                format!("expected {layers} entries (`num_hidden_layers`), found {}", items.len());
            return Err(text.refuse(TYPES, problem));
        }
    }
    let hybrid = matches!(family.mixers, Mixers::Hybrid(_));
    let kind_of = |node: &JsonNode| match node.as_str() {
        Some("full_attention") => Ok(Mixer::FullAttention),
        Some("linear_attention") if hybrid => Ok(Mixer::Gdn),
        _ => {
            let kinds =
                if hybrid { "full_attention or linear_attention" } else { "full_attention" };
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

/// The end tokens of every place that gives some, in ascending order.
fn read_end_tokens(
    outer: &Fields<'_>,
    text: &Fields<'_>,
    files: &ConfigFiles<'_>,
    vocab: usize,
) -> Result<Vec<u32>> {
    let mut tokens = end_tokens_of(outer, vocab)?;
    tokens.extend(end_tokens_of(text, vocab)?);
    if let Some((file, bytes)) = files.generation_config {
        let node = parse_json(bytes).map_err(|e| Refusal::of_syntax(file, e))?;
        tokens.extend(end_tokens_of(&Fields::of(file, &node)?, vocab)?);
    }
    tokens.sort_unstable();
    tokens.dedup();
    Ok(tokens)
}

fn end_tokens_of(fields: &Fields<'_>, vocab: usize) -> Result<Vec<u32>> {
    const KEY: &str = "eos_token_id";
    let Some(node) = fields.get(KEY) else { return Ok(Vec::new()) };
    let items = match &node.value {
        crate::units::JsonValue::List(items) => items.as_slice(),
        _ => std::slice::from_ref(node),
    };
    let id_of = |item: &JsonNode| {
        item.as_u64()
            .filter(|id| *id < vocab as u64)
            .and_then(|id| u32::try_from(id).ok())
            .ok_or_else(|| fields.expected(KEY, item, &format!("token ids below {vocab}")))
    };
    items.iter().map(id_of).collect()
}

/// Whether the output head is the embedding, checked against the weights.
fn read_tie(
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
        Some((true, file)) if tied => {
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

fn place_roles(family: &Family, prefix: &str, tied: bool, d: &Descriptor) -> Vec<Role> {
    let evaluate = |term: &&str| d.evaluate(term).unwrap_or_default();
    logical_roles(d)
        .into_iter()
        .map(|role| {
            let in_layer = role.scope != Scope::Model;
            let tied_to = (tied && role.name == RoleName::LmHead).then_some(RoleName::Embed);
            let tensor = tensor_name(family, prefix, role.name, in_layer);
            let view = View { tensor, rows: RowPattern::All };
            Role {
                name: role.name,
                scope: role.scope,
                shape: role.shape_terms.iter().map(evaluate).collect(),
                shape_terms: role.shape_terms.iter().map(|t| (*t).to_owned()).collect(),
                views: if tied_to.is_some() { Vec::new() } else { vec![view] },
                shard: role.shard,
                tied_to,
            }
        })
        .collect()
}
