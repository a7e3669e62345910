//! Structural validity: whether a descriptor describes a model at all.
//!
//! Whether an engine can run it is the engine's own check.

use super::range::{FP32_RANGE, fits_fp32};
use super::role::EXPERT;
use super::roles::{LogicalRole, logical_roles};
use super::{
    Attention, Descriptor, Ffn, GatedDeltaNet, Mixer, Mla, Moe, Role, RoleName, Rope, RopeScaling,
    RowPattern, Scope,
};

/// A descriptor contradicts itself.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{key}`: {problem}")]
pub struct Inconsistent {
    /// The key of the canonical JSON.
    pub key: String,
    pub problem: String,
}

/// Most elements of all weights together, and of all states of a sequence.
const TOTAL_LIMIT: u128 = 1 << 50;

type Check = Result<(), Inconsistent>;

fn refuse(key: impl Into<String>, problem: impl Into<String>) -> Check {
    Err(Inconsistent { key: key.into(), problem: problem.into() })
}

impl Descriptor {
    /// Checks every relation between the fields: layer kinds against the dimensions they need,
    /// divisibility, ranges, and each role's scope, shape and views against the dimensions.
    ///
    /// # Errors
    /// The first key that is inconsistent, with what was expected.
    pub fn validate(&self) -> Result<(), Inconsistent> {
        self.check_sizes()?;
        self.check_kinds()?;
        if let Some(attention) = &self.attention {
            check_attention(attention)?;
        }
        if let Some(mla) = &self.mla {
            check_mla(mla)?;
            if self.attention.is_some() {
                return refuse("mla_heads", "expected null beside full attention");
            }
        }
        if let Some(gdn) = &self.gdn {
            check_gdn(gdn)?;
        }
        if let Some(moe) = &self.moe {
            check_moe(moe)?;
        }
        self.check_end_tokens()?;
        self.check_roles()?;
        self.check_totals()
    }

    /// Bounds what the sizes of `size.rs` multiply, so that they cannot overflow.
    fn check_totals(&self) -> Check {
        let elements = |role: &Role| {
            role.shape.iter().map(|e| *e as u128).product::<u128>() * role.copies() as u128
        };
        let parameters: u128 = self.roles.iter().map(elements).sum();
        let state = self.gdn.as_ref().map_or(0, |g| {
            [g.value_heads, g.key_dim, g.value_dim, self.layers()]
                .iter()
                .map(|e| *e as u128)
                .product()
        });
        if parameters.max(state) > TOTAL_LIMIT {
            let problem =
                format!("expected at most 2^50 elements, found {}", parameters.max(state));
            return refuse("hidden", problem);
        }
        Ok(())
    }

    fn check_sizes(&self) -> Check {
        for (name, value) in self.dimensions() {
            if !(1..=super::DIMENSION_LIMIT).contains(&value) {
                let limit = super::DIMENSION_LIMIT;
                return refuse(name, format!("expected 1…{limit}, found {value}"));
            }
        }
        if !(1..=1 << 31).contains(&self.max_position_tokens) {
            let found = self.max_position_tokens;
            return refuse("max_position_tokens", format!("expected 1…2^31, found {found}"));
        }
        if !(self.norm_epsilon.is_finite() && self.norm_epsilon > 0.0) {
            let problem = format!("expected a positive number, found {}", self.norm_epsilon);
            return refuse("norm_epsilon", problem);
        }
        if !fits_fp32(self.norm_epsilon) {
            let problem = format!("expected {FP32_RANGE}, found {:?}", self.norm_epsilon);
            return refuse("norm_epsilon", problem);
        }
        Ok(())
    }

    fn check_kinds(&self) -> Check {
        let layers = self.layers();
        if !(1..=super::LAYER_LIMIT).contains(&layers) {
            let problem = format!("expected 1…{} layers, found {layers}", super::LAYER_LIMIT);
            return refuse("layer_mixers", problem);
        }
        if self.layer_ffns.len() != layers {
            let problem = format!(
                "expected {layers} entries, as `layer_mixers` has, found {}",
                self.layer_ffns.len()
            );
            return refuse("layer_ffns", problem);
        }
        let uses = [
            (
                "query_heads",
                "a full_attention layer",
                self.layer_mixers.contains(&Mixer::FullAttention),
                self.attention.is_some(),
            ),
            (
                "mla_heads",
                "an mla layer",
                self.layer_mixers.contains(&Mixer::Mla),
                self.mla.is_some(),
            ),
            (
                "gdn_key_heads",
                "a gdn layer",
                self.layer_mixers.contains(&Mixer::Gdn),
                self.gdn.is_some(),
            ),
            (
                "intermediate",
                "a dense feed-forward",
                self.layer_ffns.contains(&Ffn::Dense),
                self.intermediate.is_some(),
            ),
            (
                "moe_experts",
                "a mixture of experts",
                self.layer_ffns.contains(&Ffn::Moe),
                self.moe.is_some(),
            ),
        ];
        for (key, kind, used, given) in uses {
            match (used, given) {
                (true, false) => return refuse(key, format!("expected, because there is {kind}")),
                (false, true) => return refuse(key, format!("expected null without {kind}")),
                _ => {}
            }
        }
        Ok(())
    }

    fn check_end_tokens(&self) -> Check {
        if !self.end_tokens.is_sorted_by(|a, b| a < b) {
            return refuse("end_tokens", "expected ascending ids without repetition");
        }
        match self.end_tokens.last() {
            Some(last) if *last as usize >= self.vocab => {
                refuse("end_tokens", format!("expected ids below {}, found {last}", self.vocab))
            }
            _ => Ok(()),
        }
    }

    fn check_roles(&self) -> Check {
        let expected = logical_roles(self);
        let names = |roles: &mut dyn Iterator<Item = RoleName>| {
            roles.map(RoleName::as_str).collect::<Vec<_>>().join(", ")
        };
        if !self.roles.iter().map(|r| r.name).eq(expected.iter().map(|r| r.name)) {
            let problem = format!(
                "expected {}, found {}",
                names(&mut expected.iter().map(|r| r.name)),
                names(&mut self.roles.iter().map(|r| r.name))
            );
            return refuse("roles", problem);
        }
        self.roles
            .iter()
            .zip(&expected)
            .try_for_each(|(role, wanted)| self.check_role(role, wanted))
    }

    fn check_role(&self, role: &Role, expected: &LogicalRole) -> Check {
        let key = |field: &str| format!("roles.{}.{field}", role.name);
        if role.scope != expected.scope {
            let problem = format!("expected {}, found {}", expected.scope, role.scope);
            return refuse(key("layers"), problem);
        }
        if role.shape_terms != expected.shape_terms {
            let problem =
                format!("expected {:?}, found {:?}", expected.shape_terms, role.shape_terms);
            return refuse(key("shape_terms"), problem);
        }
        for (axis, term) in role.shape_terms.iter().enumerate() {
            let value = self
                .evaluate(term)
                .map_err(|problem| Inconsistent { key: key("shape_terms"), problem })?;
            if role.shape.get(axis) != Some(&value) || role.shape.len() != role.shape_terms.len() {
                let problem =
                    format!("expected {term} = {value} for axis {axis}, found {:?}", role.shape);
                return refuse(key("shape"), problem);
            }
        }
        match role.tied_to {
            None if role.views.is_empty() => refuse(key("views"), "expected at least one view"),
            None => check_views(role, &key("views")),
            Some(_) if !role.views.is_empty() => {
                refuse(key("views"), "expected none, because the role is tied")
            }
            Some(RoleName::Embed) if role.name == RoleName::LmHead => Ok(()),
            Some(other) => refuse(
                key("tied_to"),
                format!("expected null, or embed for lm_head; found {other}"),
            ),
        }
    }
}

fn check_attention(a: &Attention) -> Check {
    if !a.query_heads.is_multiple_of(a.kv_heads) {
        let problem =
            format!("expected a divisor of query_heads ({}), found {}", a.query_heads, a.kv_heads);
        return refuse("kv_heads", problem);
    }
    if a.rope.rotary_dim > a.head_dim || !a.rope.rotary_dim.is_multiple_of(2) {
        let problem = format!(
            "expected an even number up to head_dim ({}), found {}",
            a.head_dim, a.rope.rotary_dim
        );
        return refuse("rotary_dim", problem);
    }
    check_rope(&a.rope)
}

fn check_mla(m: &Mla) -> Check {
    if !m.rope.rotary_dim.is_multiple_of(2) {
        let problem = format!("expected an even number, found {}", m.rope.rotary_dim);
        return refuse("rotary_dim", problem);
    }
    check_rope(&m.rope)
}

fn check_rope(rope: &Rope) -> Check {
    if !(rope.theta.is_finite() && rope.theta > 0.0) {
        return refuse("rope_theta", format!("expected a positive number, found {}", rope.theta));
    }
    if !fits_fp32(rope.theta) || rope.theta < 1.0 {
        let problem = format!("expected a number from 1 to 3.4e38, found {:?}", rope.theta);
        return refuse("rope_theta", problem);
    }
    let factor = match rope.scaling {
        RopeScaling::None {} => 1.0,
        RopeScaling::Linear { factor }
        | RopeScaling::Llama3 { factor, .. }
        | RopeScaling::Yarn { factor, .. } => factor,
    };
    // Not a number is no number from 1 on.
    if !(factor >= 1.0 && fits_fp32(factor)) {
        let problem = format!("expected a `factor` from 1 to 3.4e38, found {factor:?}");
        return refuse("rope_scaling", problem);
    }
    match rope.scaling {
        RopeScaling::None {} | RopeScaling::Linear { .. } => Ok(()),
        RopeScaling::Llama3 {
            low_freq_factor,
            high_freq_factor,
            original_max_position_tokens,
            ..
        } => {
            if ![low_freq_factor, high_freq_factor].iter().all(|r| *r > 0.0 && fits_fp32(*r))
                || original_max_position_tokens == 0
            {
                return refuse("rope_scaling", "expected positive numbers");
            }
            if high_freq_factor <= low_freq_factor {
                return refuse("rope_scaling", "expected high_freq_factor above low_freq_factor");
            }
            Ok(())
        }
        RopeScaling::Yarn {
            beta_fast,
            beta_slow,
            mscale,
            mscale_all_dim,
            original_max_position_tokens,
            ..
        } => {
            let positive = [beta_fast, beta_slow].iter().all(|r| *r > 0.0 && fits_fp32(*r));
            let natural = [mscale, mscale_all_dim].iter().all(|r| r.is_finite() && *r >= 0.0);
            if !positive || !natural || original_max_position_tokens == 0 {
                return refuse("rope_scaling", "expected positive numbers");
            }
            if beta_fast < beta_slow {
                return refuse("rope_scaling", "expected beta_fast of at least beta_slow");
            }
            if rope.theta <= 1.0 {
                return refuse("rope_theta", "expected more than 1 beside yarn");
            }
            Ok(())
        }
    }
}

fn check_gdn(g: &GatedDeltaNet) -> Check {
    if g.value_heads.is_multiple_of(g.key_heads) {
        return Ok(());
    }
    let problem =
        format!("expected a multiple of gdn_key_heads ({}), found {}", g.key_heads, g.value_heads);
    refuse("gdn_value_heads", problem)
}

fn check_moe(m: &Moe) -> Check {
    let router = &m.router;
    if !(router.scaling.is_finite() && router.scaling > 0.0) {
        let problem = format!("expected a positive number, found {}", router.scaling);
        return refuse("router_scaling", problem);
    }
    if !m.experts.is_multiple_of(router.groups) {
        let problem =
            format!("expected a divisor of moe_experts ({}), found {}", m.experts, router.groups);
        return refuse("router_groups", problem);
    }
    if router.groups_kept > router.groups {
        let problem = format!(
            "expected at most router_groups ({}), found {}",
            router.groups, router.groups_kept
        );
        return refuse("router_groups_kept", problem);
    }
    let reachable = m.experts / router.groups * router.groups_kept;
    if m.experts_per_token > reachable {
        let problem = format!(
            "expected at most the {reachable} experts that the router can choose from, found {}",
            m.experts_per_token
        );
        return refuse("moe_experts_per_token", problem);
    }
    Ok(())
}

/// Views name their layer exactly where there are layers, and their rows add up.
fn check_views(role: &Role, key: &str) -> Check {
    let mut known_rows = Some(0usize);
    for view in &role.views {
        let placeholders = view.tensor.matches("{layer}").count();
        let wanted = usize::from(role.scope != Scope::Model);
        let per_expert = view.tensor.matches(EXPERT).count();
        let rest = view.tensor.replace("{layer}", "").replace(EXPERT, "");
        let braces = rest.contains(['{', '}']);
        let may_repeat = usize::from(role.experts().is_some());
        if view.tensor.is_empty() || placeholders != wanted || per_expert > may_repeat || braces {
            let problem = format!(
                "expected a tensor name with {{layer}} {}{} and no other braces, found `{}`",
                if wanted == 1 { "once" } else { "nowhere" },
                if may_repeat == 1 { ", {expert} at most once" } else { "" },
                view.tensor
            );
            return refuse(key, problem);
        }
        let copies = if per_expert == 1 { role.experts().unwrap_or(1) } else { 1 };
        let rows = match view.rows {
            RowPattern::All => None,
            RowPattern::Blocks { start, block, stride, count } => {
                let end = count
                    .checked_sub(1)
                    .and_then(|steps| steps.checked_mul(stride))
                    .and_then(|last| last.checked_add(start))
                    .and_then(|last| last.checked_add(block));
                if block == 0 || stride < block || end.is_none() {
                    let problem = format!(
                        "expected blocks that do not overlap, found {block} rows every {stride}"
                    );
                    return refuse(key, problem);
                }
                block.checked_mul(count).and_then(|rows| rows.checked_mul(copies))
            }
        };
        known_rows = known_rows.zip(rows).and_then(|(sum, rows)| sum.checked_add(rows));
    }
    let expected = match role.shape.as_slice() {
        [one] => *one,
        _ => role.matrix().0,
    };
    match known_rows {
        Some(rows) if rows != expected => {
            refuse(key, format!("expected {expected} rows in all, found {rows}"))
        }
        _ => Ok(()),
    }
}
