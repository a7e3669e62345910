//! The logical weights that a model of given kinds has: names, shapes, shard rules.
//!
//! Shapes follow from the dimensions alone, so adapters only say where the elements lie, and
//! validation compares a descriptor that was read from a file with the same table.

use super::{Descriptor, Ffn, Mixer, OutputGate, RoleName, Scope, ShardRule, SharedGate};

/// A logical weight before it is known where it lies.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct LogicalRole {
    pub name: RoleName,
    pub scope: Scope,
    /// Extents as sums of products of dimension names; the last is the reduction dimension.
    pub shape_terms: Vec<&'static str>,
    pub shard: ShardRule,
}

/// The logical weights of a model, in the order of [`RoleName::ALL`]. Reads the dimensions and
/// layer kinds of `d`, not its roles.
pub(super) fn logical_roles(d: &Descriptor) -> Vec<LogicalRole> {
    let layers_with = |mixer| Scope::Layers(positions(&d.layer_mixers, mixer));
    let every = || Scope::Layers((0..d.layers()).collect());
    let dense = || Scope::Layers(positions(&d.layer_ffns, Ffn::Dense));
    let mut roles = Vec::new();
    let mut add = |name, scope: Scope, terms: &[&'static str], shard| {
        if scope != Scope::Layers(Vec::new()) {
            roles.push(LogicalRole { name, scope, shape_terms: terms.to_vec(), shard });
        }
    };
    use RoleName as R;
    use ShardRule::{InDim, None as Whole, OutDim, OutExperts, OutHeads};

    add(R::Embed, Scope::Model, &["vocab", "hidden"], OutDim);
    add(R::LmHead, Scope::Model, &["vocab", "hidden"], OutDim);
    add(R::FinalNorm, Scope::Model, &["hidden"], Whole);
    add(R::InputNorm, every(), &["hidden"], Whole);
    add(R::PostNorm, every(), &["hidden"], Whole);
    if let Some(attention) = &d.attention {
        let attn = || layers_with(Mixer::FullAttention);
        let query_rows = match attention.output_gate {
            OutputGate::None => "query_heads*head_dim",
            OutputGate::Sigmoid => "query_heads*2*head_dim",
        };
        add(R::AttnQ, attn(), &[query_rows, "hidden"], OutHeads);
        add(R::AttnK, attn(), &["kv_heads*head_dim", "hidden"], OutHeads);
        add(R::AttnV, attn(), &["kv_heads*head_dim", "hidden"], OutHeads);
        add(R::AttnO, attn(), &["hidden", "query_heads*head_dim"], InDim);
        if attention.qk_norm {
            add(R::AttnQNorm, attn(), &["head_dim"], Whole);
            add(R::AttnKNorm, attn(), &["head_dim"], Whole);
        }
        if attention.qkv_bias {
            add(R::AttnQBias, attn(), &[query_rows], OutHeads);
            add(R::AttnKBias, attn(), &["kv_heads*head_dim"], OutHeads);
            add(R::AttnVBias, attn(), &["kv_heads*head_dim"], OutHeads);
        }
    }
    if let Some(mla) = &d.mla {
        let layers = || layers_with(Mixer::Mla);
        let query_rows = "mla_heads*mla_nope_dim+mla_heads*mla_rope_dim";
        match mla.query_rank {
            None => add(R::MlaQ, layers(), &[query_rows, "hidden"], OutHeads),
            Some(_) => {
                add(R::MlaQA, layers(), &["mla_query_rank", "hidden"], Whole);
                add(R::MlaQANorm, layers(), &["mla_query_rank"], Whole);
                add(R::MlaQB, layers(), &[query_rows, "mla_query_rank"], OutHeads);
            }
        }
        let key_value_rows = "mla_heads*mla_nope_dim+mla_heads*mla_value_dim";
        add(R::MlaKvA, layers(), &["mla_latent_dim+mla_rope_dim", "hidden"], Whole);
        add(R::MlaKvANorm, layers(), &["mla_latent_dim"], Whole);
        add(R::MlaKvB, layers(), &[key_value_rows, "mla_latent_dim"], OutHeads);
        add(R::MlaO, layers(), &["hidden", "mla_heads*mla_value_dim"], InDim);
    }
    if d.gdn.is_some() {
        let gdn = || layers_with(Mixer::Gdn);
        let channels = "2*gdn_key_heads*gdn_key_dim+gdn_value_heads*gdn_value_dim";
        let values = "gdn_value_heads*gdn_value_dim";
        add(R::GdnQkv, gdn(), &[channels, "hidden"], OutHeads);
        add(R::GdnZ, gdn(), &[values, "hidden"], OutHeads);
        add(R::GdnA, gdn(), &["gdn_value_heads", "hidden"], OutHeads);
        add(R::GdnB, gdn(), &["gdn_value_heads", "hidden"], OutHeads);
        add(R::GdnConv, gdn(), &[channels, "gdn_conv_width"], OutHeads);
        add(R::GdnDtBias, gdn(), &["gdn_value_heads"], OutHeads);
        add(R::GdnALog, gdn(), &["gdn_value_heads"], OutHeads);
        add(R::GdnNorm, gdn(), &["gdn_value_dim"], Whole);
        add(R::GdnOut, gdn(), &["hidden", values], InDim);
    }
    add(R::MlpGate, dense(), &["intermediate", "hidden"], OutDim);
    add(R::MlpUp, dense(), &["intermediate", "hidden"], OutDim);
    add(R::MlpDown, dense(), &["hidden", "intermediate"], InDim);
    if let Some(moe) = &d.moe {
        let moe_layers = || Scope::Layers(positions(&d.layer_ffns, Ffn::Moe));
        let expert_in = ["moe_experts", "moe_intermediate", "hidden"];
        add(R::MoeRouter, moe_layers(), &["moe_experts", "hidden"], Whole);
        add(R::MoeGate, moe_layers(), &expert_in, OutExperts);
        add(R::MoeUp, moe_layers(), &expert_in, OutExperts);
        add(R::MoeDown, moe_layers(), &["moe_experts", "hidden", "moe_intermediate"], OutExperts);
        if let Some(shared) = &moe.shared {
            add(R::SharedGate, moe_layers(), &["shared_intermediate", "hidden"], OutDim);
            add(R::SharedUp, moe_layers(), &["shared_intermediate", "hidden"], OutDim);
            add(R::SharedDown, moe_layers(), &["hidden", "shared_intermediate"], InDim);
            if shared.gate == SharedGate::Sigmoid {
                add(R::SharedScale, moe_layers(), &["1", "hidden"], Whole);
            }
        }
    }
    roles
}

fn positions<T: PartialEq>(kinds: &[T], wanted: T) -> Vec<usize> {
    kinds.iter().enumerate().filter(|(_, k)| **k == wanted).map(|(i, _)| i).collect()
}
