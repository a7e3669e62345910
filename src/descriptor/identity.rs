//! The descriptor as the manifest stamps it: what the model means, and where its weights lie.

use super::{
    Attention, Descriptor, GatedDeltaNet, MLA_NORM_EPSILON, Mla, Moe, OutputGate, Role, Rope,
    RopeScaling, RowPattern, Scope,
};
use crate::units::Canonical;

/// Epsilon inside the L2 norm of a gated delta net's q and k.
pub const GDN_QK_NORM_EPSILON: f64 = 1e-6;

impl Descriptor {
    /// The fields of the manifest's `semantic` block: everything that decides what the model
    /// computes, and nothing about files, placement or numerics. Kinds that the model does not
    /// have are left out, so that a new kind moves no existing identity; the family's name is left
    /// out too, because the same arithmetic is the same model.
    pub fn semantic(&self) -> Canonical {
        let mut fields = vec![
            ("hidden", Canonical::from(self.hidden)),
            ("vocab", self.vocab.into()),
            ("max_position_tokens", self.max_position_tokens.into()),
            ("layer_mixers", Canonical::list(self.layer_mixers.iter().map(|m| m.as_str()))),
            ("layer_ffns", Canonical::list(self.layer_ffns.iter().map(|f| f.as_str()))),
            ("norm_style", self.norm_style.as_str().into()),
            ("norm_epsilon", self.norm_epsilon.into()),
            ("end_tokens", Canonical::list(self.end_tokens.iter().copied())),
            ("roles", Canonical::List(self.roles.iter().map(semantic_role).collect())),
        ];
        fields.extend(self.attention.as_ref().map(|a| ("attention", semantic_attention(a))));
        fields.extend(self.mla.as_ref().map(|m| ("mla", semantic_mla(m))));
        fields.extend(self.gdn.as_ref().map(|g| ("gdn", semantic_gdn(g))));
        fields.extend(self.intermediate.map(|i| ("intermediate", i.into())));
        fields.extend(self.moe.as_ref().map(|m| ("moe", semantic_moe(m))));
        Canonical::object(fields)
    }

    /// The fields of the manifest's `storage` block: tensor names and views. They move no other
    /// identity: the same weights in another layout are the same model.
    pub fn storage(&self) -> Canonical {
        let views = |role: &Role| {
            let views = role.views.iter().map(|view| {
                Canonical::object([
                    ("tensor", Canonical::from(view.tensor.as_str())),
                    ("rows", rows(&view.rows)),
                ])
            });
            Canonical::List(views.collect())
        };
        let stored = self.roles.iter().filter(|role| role.tied_to.is_none());
        Canonical::object(stored.map(|role| (role.name.as_str(), views(role))))
    }
}

fn semantic_role(role: &Role) -> Canonical {
    let layers = match &role.scope {
        Scope::Model => Canonical::Null,
        Scope::Layers(layers) => Canonical::list(layers.iter().copied()),
    };
    Canonical::object([
        ("name", Canonical::from(role.name.as_str())),
        ("layers", layers),
        ("shape", Canonical::list(role.shape.iter().copied())),
        ("tied_to", role.tied_to.map(|t| t.as_str()).into()),
    ])
}

fn semantic_attention(a: &Attention) -> Canonical {
    let query_rows = match a.output_gate {
        OutputGate::None => "per head q",
        OutputGate::Sigmoid => "per head q, gate",
    };
    let mut fields = vec![
        ("query_heads", Canonical::from(a.query_heads)),
        ("kv_heads", a.kv_heads.into()),
        ("head_dim", a.head_dim.into()),
        ("qk_norm", a.qk_norm.into()),
        ("output_gate", a.output_gate.as_str().into()),
        ("query_rows", query_rows.into()),
    ];
    fields.extend(semantic_rope(&a.rope));
    if a.qkv_bias {
        fields.push(("qkv_bias", true.into()));
    }
    fields.extend(a.window.map(|w| ("window", w.into())));
    Canonical::object(fields)
}

fn semantic_rope(rope: &Rope) -> [(&'static str, Canonical); 4] {
    [
        ("rope_convention", rope.convention.as_str().into()),
        ("rope_theta", rope.theta.into()),
        ("rotary_dim", rope.rotary_dim.into()),
        ("rope_scaling", semantic_scaling(&rope.scaling)),
    ]
}

fn semantic_mla(m: &Mla) -> Canonical {
    let mut fields = vec![
        ("heads", Canonical::from(m.heads)),
        ("query_rank", m.query_rank.into()),
        ("latent_dim", m.latent_dim.into()),
        ("nope_dim", m.nope_dim.into()),
        ("value_dim", m.value_dim.into()),
        ("query_rows", "per head nope, rope".into()),
        ("key_value_rows", "per head nope, value".into()),
        ("norm_epsilon", MLA_NORM_EPSILON.into()),
    ];
    fields.extend(semantic_rope(&m.rope));
    Canonical::object(fields)
}

fn semantic_scaling(scaling: &RopeScaling) -> Canonical {
    let mut fields = vec![("kind", Canonical::from(scaling.as_str()))];
    match scaling {
        RopeScaling::None {} => {}
        RopeScaling::Linear { factor } => fields.push(("factor", (*factor).into())),
        RopeScaling::Llama3 {
            factor,
            low_freq_factor,
            high_freq_factor,
            original_max_position_tokens,
        } => fields.extend([
            ("factor", (*factor).into()),
            ("low_freq_factor", (*low_freq_factor).into()),
            ("high_freq_factor", (*high_freq_factor).into()),
            ("original_max_position_tokens", (*original_max_position_tokens).into()),
        ]),
        RopeScaling::Yarn {
            factor,
            beta_fast,
            beta_slow,
            mscale,
            mscale_all_dim,
            original_max_position_tokens,
        } => fields.extend([
            ("factor", (*factor).into()),
            ("beta_fast", (*beta_fast).into()),
            ("beta_slow", (*beta_slow).into()),
            ("mscale", (*mscale).into()),
            ("mscale_all_dim", (*mscale_all_dim).into()),
            ("original_max_position_tokens", (*original_max_position_tokens).into()),
        ]),
    }
    Canonical::object(fields)
}

fn semantic_gdn(g: &GatedDeltaNet) -> Canonical {
    Canonical::object([
        ("key_heads", Canonical::from(g.key_heads)),
        ("value_heads", g.value_heads.into()),
        ("key_dim", g.key_dim.into()),
        ("value_dim", g.value_dim.into()),
        ("conv_width", g.conv_width.into()),
        ("qkv_rows", "all q, all k, all v".into()),
        ("qk_norm_epsilon", GDN_QK_NORM_EPSILON.into()),
        ("output_norm_weight", "plain, normalise before silu gate".into()),
    ])
}

fn semantic_moe(m: &Moe) -> Canonical {
    let mut fields = vec![
        ("experts", Canonical::from(m.experts)),
        ("experts_per_token", m.experts_per_token.into()),
        ("intermediate", m.intermediate.into()),
        ("scoring", "softmax over all experts".into()),
        ("ties", "lowest id".into()),
        ("router_logits", m.router.logits.as_str().into()),
        ("router_weights", m.router.weights.as_str().into()),
        ("router_renormalises", m.router.renormalise.into()),
        ("router_scaling", m.router.scaling.into()),
        ("router_groups", m.router.groups.into()),
        ("router_groups_kept", m.router.groups_kept.into()),
    ];
    fields.extend(m.shared.map(|s| ("shared_intermediate", s.intermediate.into())));
    fields.extend(m.shared.map(|s| ("shared_gate", s.gate.as_str().into())));
    Canonical::object(fields)
}

fn rows(pattern: &RowPattern) -> Canonical {
    match pattern {
        RowPattern::All => "all".into(),
        RowPattern::Blocks { start, block, stride, count } => Canonical::object([
            ("start", Canonical::from(*start)),
            ("block", (*block).into()),
            ("stride", (*stride).into()),
            ("count", (*count).into()),
        ]),
    }
}
