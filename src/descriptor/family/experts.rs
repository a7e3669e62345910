//! Mixture of experts: which layers have one, and its router.

use super::table::{DenseLayers, Experts, Renormalise, Shared};
use crate::descriptor::config::{DIMENSION_LIMIT, Fields, Only, agreed};
use crate::descriptor::{Ffn, Moe, Refusal, Router, SharedExpert};

type Result<T> = std::result::Result<T, Box<Refusal>>;

/// The feed-forward of every layer, and the experts where some layer has them.
pub(super) fn read_ffns(
    experts: Option<&Experts>,
    text: &Fields<'_>,
    layers: usize,
) -> Result<(Vec<Ffn>, Option<Moe>)> {
    let Some(rule) = experts else { return Ok((vec![Ffn::Dense; layers], None)) };
    let ffns = layer_kinds(rule.dense, text, layers)?;
    let moe = read_moe(rule, text)?;
    Ok((ffns.clone(), ffns.contains(&Ffn::Moe).then_some(moe)))
}

fn layer_kinds(rule: DenseLayers, text: &Fields<'_>, layers: usize) -> Result<Vec<Ffn>> {
    const LISTED: &str = "mlp_only_layers";
    const STEP: &str = "decoder_sparse_step";
    let kind = |dense: bool| if dense { Ffn::Dense } else { Ffn::Moe };
    match rule {
        DenseLayers::None => {
            Only::EmptyList.check(text, LISTED)?;
            Only::Count(1).check(text, STEP)?;
            Ok(vec![Ffn::Moe; layers])
        }
        DenseLayers::ListedOrStepped => {
            let mut dense = vec![false; layers];
            for item in text.optional_list(LISTED)?.unwrap_or_default() {
                let layer = item.as_u64().filter(|l| *l < layers as u64).ok_or_else(|| {
                    text.expected_at(item, LISTED, &format!("numbers of layers below {layers}"))
                })?;
                dense[layer as usize] = true;
            }
            let step = text.optional_count(STEP)?.unwrap_or(1);
            let kinds = dense.iter().enumerate();
            Ok(kinds.map(|(l, dense)| kind(*dense || !(l + 1).is_multiple_of(step))).collect())
        }
        DenseLayers::Leading => {
            let leading = optional_natural(text, "first_k_dense_replace")?.unwrap_or(0);
            let every = text.optional_count("moe_layer_freq")?.unwrap_or(1);
            Ok((0..layers).map(|l| kind(l < leading || !l.is_multiple_of(every))).collect())
        }
    }
}

/// A count that may be 0.
pub(super) fn optional_natural(text: &Fields<'_>, key: &'static str) -> Result<Option<usize>> {
    match text.get(key) {
        Some(node) if node.as_u64() == Some(0) => Ok(Some(0)),
        _ => text.optional_count(key),
    }
}

fn read_moe(rule: &Experts, text: &Fields<'_>) -> Result<Moe> {
    let places: Vec<_> = rule.count.iter().map(|key| (text, *key)).collect();
    let (_, key, _) =
        agreed(&places)?.ok_or_else(|| text.missing(rule.count[0], "a number of experts"))?;
    let experts = text.count(key)?;
    const PER_TOKEN: &str = "num_experts_per_tok";
    const RENORMALISE: &str = "norm_topk_prob";
    let experts_per_token = text.count(PER_TOKEN)?;
    if experts_per_token > experts {
        let problem = format!("expected at most `{key}` ({experts}), found {experts_per_token}");
        return Err(text.refuse(PER_TOKEN, problem));
    }
    let intermediate = text.count(rule.intermediate)?;
    let (groups, groups_kept) = match rule.groups {
        true => read_groups(text, experts, experts_per_token)?,
        false => (1, 1),
    };
    let router = Router {
        logits: rule.logits,
        weights: rule.weights,
        renormalise: match rule.renormalise {
            // What such a family's code never asks for may still be said, if it is true.
            Renormalise::Always => Only::Flag(true).check(text, RENORMALISE).map(|()| true)?,
            Renormalise::Never => Only::Flag(false).check(text, RENORMALISE).map(|()| false)?,
            Renormalise::Flag { default } => text.optional_flag(RENORMALISE)?.unwrap_or(default),
        },
        scaling: match rule.scaling {
            Some(key) => text.optional_real(key)?.unwrap_or(1.0),
            None => 1.0,
        },
        groups,
        groups_kept,
    };
    let shared = match rule.shared {
        Shared::None => None,
        Shared::Width { key, gate } => Some(SharedExpert { intermediate: text.count(key)?, gate }),
        Shared::Count { key, gate } => {
            match text.given_or_null(key).and(optional_natural(text, key))? {
                None | Some(0) => None,
                Some(count) => {
                    let width = count.saturating_mul(intermediate);
                    if width > DIMENSION_LIMIT {
                        let problem = format!("{count} × {intermediate} exceeds {DIMENSION_LIMIT}");
                        return Err(text.refuse(key, problem));
                    }
                    Some(SharedExpert { intermediate: width, gate })
                }
            }
        }
    };
    Ok(Moe { experts, experts_per_token, intermediate, router, shared })
}

/// Groups of experts and how many of them are kept.
fn read_groups(
    text: &Fields<'_>,
    experts: usize,
    experts_per_token: usize,
) -> Result<(usize, usize)> {
    const METHOD: &str = "topk_method";
    let groups = text.optional_count("n_group")?;
    let kept = text.optional_count("topk_group")?;
    match text.optional_text(METHOD)? {
        None | Some("greedy") => return Ok((1, 1)),
        Some("group_limited_greedy") => {}
        Some(other) => {
            let problem = format!(
                "expected \"greedy\" or \"group_limited_greedy\", found \"{other}\": \
                 not implemented"
            );
            return Err(text.refuse(METHOD, problem));
        }
    }
    let groups = groups.ok_or_else(|| text.missing("n_group", "a number of groups"))?;
    let kept = kept.ok_or_else(|| text.missing("topk_group", "a number of groups"))?;
    if !experts.is_multiple_of(groups) {
        let problem = format!("expected a divisor of the {experts} experts, found {groups}");
        return Err(text.refuse("n_group", problem));
    }
    if kept > groups || experts / groups * kept < experts_per_token {
        let problem = format!(
            "expected 1…{groups} groups with at least {experts_per_token} experts in all, \
             found {kept} groups of {}",
            experts / groups
        );
        return Err(text.refuse("topk_group", problem));
    }
    Ok((groups, kept))
}
