//! Writing.

use super::layout;
use crate::descriptor::{Descriptor, Role, RopeScaling, RowPattern, Scope};
use serde_json::{Map, Value, json};

/// Version of the schema; a reader refuses others.
pub const SCHEMA_VERSION: u64 = 2;

impl Descriptor {
    /// The canonical JSON: every key, in a fixed order, laid out for people and for diffs.
    pub fn to_json(&self) -> String {
        layout::pretty(&self.to_value())
    }

    /// The canonical JSON as a value.
    pub(in crate::descriptor) fn to_value(&self) -> Value {
        let words = |words: Vec<&'static str>| Value::from(words);
        let mut fields = Map::new();
        let mut put = |key: &str, value: Value| {
            fields.insert(key.to_owned(), value);
        };
        put("schema_version", SCHEMA_VERSION.into());
        put("family", self.family.as_str().into());
        put("hidden", self.hidden.into());
        put("vocab", self.vocab.into());
        put("max_position_tokens", self.max_position_tokens.into());
        put("layer_mixers", words(self.layer_mixers.iter().map(|m| m.as_str()).collect()));
        put("layer_ffns", words(self.layer_ffns.iter().map(|f| f.as_str()).collect()));
        put("norm_style", self.norm_style.as_str().into());
        put("norm_epsilon", self.norm_epsilon.into());
        let a = self.attention.as_ref();
        put("query_heads", a.map(|a| a.query_heads).into());
        put("kv_heads", a.map(|a| a.kv_heads).into());
        put("head_dim", a.map(|a| a.head_dim).into());
        put("qk_norm", a.map(|a| a.qk_norm).into());
        put("qkv_bias", a.map(|a| a.qkv_bias).into());
        put("output_gate", a.map(|a| a.output_gate.as_str()).into());
        put("window", a.and_then(|a| a.window).into());
        let l = self.mla.as_ref();
        put("mla_heads", l.map(|l| l.heads).into());
        put("mla_query_rank", l.and_then(|l| l.query_rank).into());
        put("mla_latent_dim", l.map(|l| l.latent_dim).into());
        put("mla_nope_dim", l.map(|l| l.nope_dim).into());
        put("mla_value_dim", l.map(|l| l.value_dim).into());
        let rope = a.map(|a| &a.rope).or(l.map(|l| &l.rope));
        put("rope_convention", rope.map(|r| r.convention.as_str()).into());
        put("rope_theta", rope.map(|r| r.theta).into());
        put("rotary_dim", rope.map(|r| r.rotary_dim).into());
        put("rope_scaling", rope.map(|r| scaling(&r.scaling)).into());
        let g = self.gdn.as_ref();
        put("gdn_key_heads", g.map(|g| g.key_heads).into());
        put("gdn_value_heads", g.map(|g| g.value_heads).into());
        put("gdn_key_dim", g.map(|g| g.key_dim).into());
        put("gdn_value_dim", g.map(|g| g.value_dim).into());
        put("gdn_conv_width", g.map(|g| g.conv_width).into());
        put("intermediate", self.intermediate.into());
        let m = self.moe.as_ref();
        put("moe_experts", m.map(|m| m.experts).into());
        put("moe_experts_per_token", m.map(|m| m.experts_per_token).into());
        put("moe_intermediate", m.map(|m| m.intermediate).into());
        put("router_logits", m.map(|m| m.router.logits.as_str()).into());
        put("router_weights", m.map(|m| m.router.weights.as_str()).into());
        put("router_renormalises", m.map(|m| m.router.renormalise).into());
        put("router_scaling", m.map(|m| m.router.scaling).into());
        put("router_groups", m.map(|m| m.router.groups).into());
        put("router_groups_kept", m.map(|m| m.router.groups_kept).into());
        let shared = m.and_then(|m| m.shared);
        put("shared_intermediate", shared.map(|s| s.intermediate).into());
        put("shared_gate", shared.map(|s| s.gate.as_str()).into());
        put("end_tokens", self.end_tokens.clone().into());
        put("roles", self.roles.iter().map(role).collect::<Vec<_>>().into());
        Value::Object(fields)
    }
}

fn scaling(scaling: &RopeScaling) -> Value {
    match scaling {
        RopeScaling::None {} => json!({ "kind": "none" }),
        RopeScaling::Linear { factor } => json!({ "kind": "linear", "factor": factor }),
        RopeScaling::Llama3 {
            factor,
            low_freq_factor,
            high_freq_factor,
            original_max_position_tokens,
        } => json!({
            "kind": "llama3",
            "factor": factor,
            "low_freq_factor": low_freq_factor,
            "high_freq_factor": high_freq_factor,
            "original_max_position_tokens": original_max_position_tokens,
        }),
        RopeScaling::Yarn {
            factor,
            beta_fast,
            beta_slow,
            mscale,
            mscale_all_dim,
            original_max_position_tokens,
        } => json!({
            "kind": "yarn",
            "factor": factor,
            "beta_fast": beta_fast,
            "beta_slow": beta_slow,
            "mscale": mscale,
            "mscale_all_dim": mscale_all_dim,
            "original_max_position_tokens": original_max_position_tokens,
        }),
    }
}

fn role(role: &Role) -> Value {
    let views = role.views.iter().map(|view| {
        let rows = match &view.rows {
            RowPattern::All => json!("all"),
            RowPattern::Blocks { start, block, stride, count } => {
                json!({ "start": start, "block": block, "stride": stride, "count": count })
            }
        };
        json!({ "tensor": view.tensor, "rows": rows })
    });
    json!({
        "name": role.name.as_str(),
        "layers": match &role.scope {
            Scope::Model => Value::Null,
            Scope::Layers(layers) => layers.clone().into(),
        },
        "shape": role.shape,
        "shape_terms": role.shape_terms,
        "shard": role.shard.as_str(),
        "tied_to": role.tied_to.map(|t| t.as_str()),
        "views": views.collect::<Vec<_>>(),
    })
}
