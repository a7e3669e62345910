//! Rotary embeddings in both dialects: `rope_theta` + `rope_scaling`, and `rope_parameters`.

use super::{Fields, Only, agreed};
use crate::descriptor::{Refusal, Rope, RopeConvention, RopeScaling};
use crate::tensor::ln64;

/// What a family allows of rope.
#[derive(Clone, Copy, Debug)]
pub(in crate::descriptor) struct RopeRule {
    pub convention: RopeConvention,
    /// Base where the config gives none; `None` makes it required.
    pub default_theta: Option<f64>,
    pub partial: PartialRotary,
    /// Scaling kinds beyond `default`.
    pub scalings: &'static [&'static str],
    /// Keys of the rope object without effect on text.
    pub ignored: &'static [&'static str],
}

/// Scalings of families whose pairs are the halves of a head. They change frequencies and magnitude
/// and nothing else, so a family that has them in no published config takes them all the same.
pub(in crate::descriptor) const HALF_SPLIT_SCALINGS: &[&str] = &["linear", "llama3", "yarn"];

/// Whether a family rotates part of a head.
#[derive(Clone, Copy, Debug)]
pub(in crate::descriptor) enum PartialRotary {
    /// Whole heads.
    Never,
    /// The first int(head_dim · `partial_rotary_factor`) dimensions; the factor is required.
    Required,
}

/// Reads rope from the text part of a config.
///
/// # Errors
/// Spellings that disagree, an unknown kind of scaling, missing or unknown fields.
pub(in crate::descriptor) fn read_rope(
    text: &Fields<'_>,
    rule: &RopeRule,
    head_dim: usize,
) -> Result<Rope, Box<Refusal>> {
    let scaling = text.object("rope_scaling")?;
    let parameters = text.object("rope_parameters")?;
    let objects: Vec<&Fields<'_>> = parameters.iter().chain(&scaling).collect();
    let within = |key| objects.iter().map(|o| (*o, key)).collect::<Vec<_>>();

    let mut places = vec![(text, "rope_theta")];
    places.extend(within("rope_theta"));
    let theta = match agreed(&places)? {
        Some((fields, key, _)) => fields.real_from_one(key)?,
        None => rule.default_theta.ok_or_else(|| {
            text.missing("rope_theta", "a positive number, here or in `rope_parameters`")
        })?,
    };

    let rope = Rope {
        convention: rule.convention,
        theta,
        rotary_dim: rotary_dim(text, &objects, rule, head_dim)?,
        scaling: read_scaling(text, &objects, rule)?,
    };
    for object in &objects {
        object.finish(&[rule.ignored])?;
    }
    Ok(rope)
}

fn rotary_dim(
    text: &Fields<'_>,
    objects: &[&Fields<'_>],
    rule: &RopeRule,
    head_dim: usize,
) -> Result<usize, Box<Refusal>> {
    const KEY: &str = "partial_rotary_factor";
    let mut places = vec![(text, KEY)];
    places.extend(objects.iter().map(|o| (*o, KEY)));
    let found = agreed(&places)?;
    let factor = match (found, rule.partial) {
        (Some((fields, key, node)), partial) => {
            let factor = fields.real(key)?;
            let whole = matches!(partial, PartialRotary::Never);
            if factor > 1.0 || (whole && factor != 1.0) {
                let expected = if whole { "1" } else { "a factor in (0, 1]" };
                return Err(fields.expected(key, node, expected));
            }
            factor
        }
        (None, PartialRotary::Never) => 1.0,
        (None, PartialRotary::Required) => {
            let what = "a factor in (0, 1], here or in `rope_parameters`";
            return Err(text.missing(KEY, what));
        }
    };
    let rotary_dim = (head_dim as f64 * factor) as usize;
    if rotary_dim == 0 || !rotary_dim.is_multiple_of(2) {
        let (fields, key) = found.map_or((text, "head_dim"), |(fields, key, _)| (fields, key));
        let problem = format!(
            "expected an even number of rotated dimensions, found {rotary_dim} of {head_dim}"
        );
        return Err(fields.refuse(key, problem));
    }
    Ok(rotary_dim)
}

fn read_scaling(
    text: &Fields<'_>,
    objects: &[&Fields<'_>],
    rule: &RopeRule,
) -> Result<RopeScaling, Box<Refusal>> {
    let places: Vec<_> = objects.iter().flat_map(|o| [(*o, "rope_type"), (*o, "type")]).collect();
    let Some((fields, key, node)) = agreed(&places)? else {
        return match text.get("rope_scaling") {
            Some(_) => Err(objects[objects.len() - 1].missing("rope_type", "a text")),
            None => Ok(RopeScaling::None {}),
        };
    };
    let kind = fields.optional_text(key)?.unwrap_or_default();
    if kind == "default" {
        return Ok(RopeScaling::None {});
    }
    if !rule.scalings.contains(&kind) {
        let known: Vec<String> =
            ["default"].iter().chain(rule.scalings).map(|k| format!("\"{k}\"")).collect();
        let expected = known.join(" or ");
        return Err(
            fields.refuse(key, format!("expected {expected}, found {node}: not implemented"))
        );
    }
    let real = |key: &'static str| scaling_field(objects, key).map(|(f, key)| f.real(key))?;
    let factor = || scaling_field(objects, "factor").map(|(f, key)| f.real_from_one(key))?;
    match kind {
        "linear" => Ok(RopeScaling::Linear { factor: factor()? }),
        "llama3" => {
            let (original, original_key) =
                scaling_field(objects, "original_max_position_embeddings")?;
            let low_freq_factor = real("low_freq_factor")?;
            let high_freq_factor = real("high_freq_factor")?;
            if high_freq_factor <= low_freq_factor {
                let (fields, key) = scaling_field(objects, "high_freq_factor")?;
                let problem = format!(
                    "expected more than `low_freq_factor` ({low_freq_factor}), \
                     found {high_freq_factor}"
                );
                return Err(fields.refuse(key, problem));
            }
            Ok(RopeScaling::Llama3 {
                factor: factor()?,
                low_freq_factor,
                high_freq_factor,
                original_max_position_tokens: original.count_up_to(original_key, 1 << 31)?,
            })
        }
        "yarn" => read_yarn(objects),
        other => Err(fields.refuse(key, format!("scaling {other:?} is not implemented"))),
    }
}

/// YaRN. Without both magnitudes cosines and sines are scaled by 0.1·ln(factor) + 1, as if `mscale`
/// were 1 and `mscale_all_dim` 0; `attention_factor` says the scale itself.
fn read_yarn(objects: &[&Fields<'_>]) -> Result<RopeScaling, Box<Refusal>> {
    let at = |key: &'static str| scaling_field(objects, key);
    let (fields, key) = at("truncate")?;
    Only::Flag(true).check(fields, key)?;
    let (fields, key) = at("factor")?;
    let factor = fields.real_from_one(key)?;
    let optional = |key: &'static str| at(key).map(|(f, key)| f.optional_real(key))?;
    let magnitude = |key: &'static str| at(key).map(|(f, key)| f.optional_magnitude(key))?;
    let given = (magnitude("mscale")?, magnitude("mscale_all_dim")?);
    let (mscale, mscale_all_dim) = match (optional("attention_factor")?, given) {
        (Some(attention), (_, all)) => {
            let (fields, key) = at("attention_factor")?;
            let all = all.unwrap_or(0.0);
            (mscale_of(attention, factor, all).map_err(|why| fields.refuse(key, why))?, all)
        }
        (None, (Some(mscale), Some(all))) if mscale > 0.0 && all > 0.0 => (mscale, all),
        (None, (_, Some(all))) if all > 0.0 => {
            let (fields, key) = at("mscale")?;
            let what = "a positive number, because `mscale_all_dim` is given";
            return Err(match fields.get(key) {
                Some(node) => fields.expected(key, node, what),
                None => fields.missing(key, what),
            });
        }
        _ => (1.0, 0.0),
    };
    let (original, original_key) = at("original_max_position_embeddings")?;
    Ok(RopeScaling::Yarn {
        factor,
        beta_fast: optional("beta_fast")?.unwrap_or(32.0),
        beta_slow: optional("beta_slow")?.unwrap_or(1.0),
        mscale,
        mscale_all_dim,
        original_max_position_tokens: original.count_up_to(original_key, 1 << 31)?,
    })
}

/// The `mscale` with which cosines and sines are scaled by `attention`, as a config may say outright.
fn mscale_of(attention: f64, factor: f64, mscale_all_dim: f64) -> Result<f64, String> {
    let per_mscale = if factor > 1.0 { 0.1 * ln64(factor) } else { 0.0 };
    let excess = attention * (per_mscale * mscale_all_dim + 1.0) - 1.0;
    match (excess, per_mscale) {
        (0.0, _) => Ok(0.0),
        (excess, per_mscale) if excess > 0.0 && per_mscale > 0.0 => Ok(excess / per_mscale),
        _ => Err(format!("expected 1 or more (1 where `factor` is at most 1), found {attention}")),
    }
}

/// Where a scaling field stands; the first object if nowhere, so that it is reported missing there.
fn scaling_field<'f, 'a>(
    objects: &[&'f Fields<'a>],
    key: &'static str,
) -> Result<(&'f Fields<'a>, &'static str), Box<Refusal>> {
    let places: Vec<_> = objects.iter().map(|o| (*o, key)).collect();
    Ok(agreed(&places)?.map_or((objects[0], key), |(fields, key, _)| (fields, key)))
}
