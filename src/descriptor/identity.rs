//! The descriptor as the manifest stamps it: what the model means, and where its weights lie.

use super::{
    Attention, Descriptor, GatedDeltaNet, OutputGate, Role, RopeScaling, RowPattern, Scope,
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
        fields.extend(self.gdn.as_ref().map(|g| ("gdn", semantic_gdn(g))));
        fields.extend(self.intermediate.map(|i| ("intermediate", i.into())));
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
    Canonical::object([
        ("query_heads", Canonical::from(a.query_heads)),
        ("kv_heads", a.kv_heads.into()),
        ("head_dim", a.head_dim.into()),
        ("qk_norm", a.qk_norm.into()),
        ("output_gate", a.output_gate.as_str().into()),
        ("query_rows", query_rows.into()),
        ("rope_convention", a.rope.convention.as_str().into()),
        ("rope_theta", a.rope.theta.into()),
        ("rotary_dim", a.rope.rotary_dim.into()),
        ("rope_scaling", semantic_scaling(&a.rope.scaling)),
    ])
}

fn semantic_scaling(scaling: &RopeScaling) -> Canonical {
    let mut fields = vec![("kind", Canonical::from(scaling.as_str()))];
    match scaling {
        RopeScaling::None {} => {}
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
