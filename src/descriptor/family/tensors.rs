//! Tensor names: where the roles of a checkpoint lie, and whether they are there.

use super::Family;
use crate::descriptor::{Descriptor, Refusal, Role, RoleName, RowPattern, Scope, View};
use crate::units::nearest;
use std::collections::BTreeSet;

/// The names of a checkpoint's tensors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorIndex {
    /// The file that lists them, for messages.
    pub file: String,
    pub names: BTreeSet<String>,
}

/// Beginnings of names that belong to parts a text engine leaves out: vision towers and
/// multi-token prediction.
const SKIPPED: &[&str] = &["model.visual.", "visual.", "mtp."];

/// Buffers that old checkpoints store although they follow from the config.
const DERIVED: &str = ".rotary_emb.inv_freq";

impl TensorIndex {
    /// Whether a tensor of this name is indexed and never read: vision towers, multi-token
    /// prediction, and buffers that follow from the config.
    pub fn is_skipped(name: &str) -> bool {
        name.ends_with(DERIVED) || SKIPPED.iter().any(|skipped| name.starts_with(skipped))
    }

    /// Whether the checkpoint has an output head of its own.
    pub(super) fn has_head(&self) -> bool {
        self.names.contains(HEAD)
    }

    /// The prefix under which this checkpoint keeps the text model.
    pub(super) fn prefix(
        &self,
        candidates: &'static [&'static str],
    ) -> Result<&'static str, Box<Refusal>> {
        let embed = EMBED;
        let found: Vec<&'static str> = candidates
            .iter()
            .copied()
            .filter(|p| self.names.contains(&format!("{p}{embed}")))
            .collect();
        let spelt = |prefixes: &[&str], joint: &str| {
            prefixes.iter().map(|p| format!("`{p}{embed}`")).collect::<Vec<_>>().join(joint)
        };
        match found.as_slice() {
            [one] => Ok(*one),
            [] => Err(Refusal::of_file(
                &self.file,
                format!("expected a tensor {}, found none", spelt(candidates, " or ")),
            )),
            several => Err(Refusal::of_file(
                &self.file,
                format!("expected one text model, found both {}", spelt(several, " and ")),
            )),
        }
    }

    /// Compares the names with those that the descriptor's views need.
    ///
    /// # Errors
    /// A tensor that is needed and absent (with the nearest name that is there), or one inside the
    /// text model that the descriptor has no use for: a bias, an extra layer.
    pub fn check(&self, descriptor: &Descriptor) -> Result<(), Box<Refusal>> {
        let mut needed = BTreeSet::new();
        for role in &descriptor.roles {
            for layer in role.instances() {
                needed.extend(role.tensors(layer).into_iter().map(|(name, _)| name));
            }
        }
        if let Some(missing) = needed.iter().find(|n| !self.names.contains(*n)) {
            let refusal = Refusal::of_file(&self.file, format!("tensor `{missing}` is missing"));
            let unused = self.names.difference(&needed).map(String::as_str);
            return Err(match nearest(missing, unused) {
                Some(near) => refusal.help(format!("`{near}` is there; is it meant?")),
                None => refusal,
            });
        }
        // Whether a tied model's stored head is the embedding's copy shows when both are read.
        let head = descriptor.roles.iter().find(|r| r.name == RoleName::LmHead);
        let is_copy = |name: &str| name == HEAD && head.is_some_and(|r| r.tied_to.is_some());
        let unclaimed =
            self.names.difference(&needed).find(|n| !TensorIndex::is_skipped(n) && !is_copy(n));
        match unclaimed {
            Some(name) => Err(Refusal::of_file(
                &self.file,
                format!("tensor `{name}` has no place in the model that the config describes"),
            )),
            None => Ok(()),
        }
    }
}

const HEAD: &str = "lm_head.weight";
const EMBED: &str = "embed_tokens.weight";

/// Rows of a stored tensor: its name behind the prefix (and, in layers, `layers.{layer}.`), and
/// which rows.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stored {
    name: &'static str,
    rows: Rows,
}

/// Which rows of a tensor, in terms of the dimensions.
#[derive(Clone, Copy, Debug)]
enum Rows {
    All,
    Blocks { start: &'static str, block: &'static str, stride: &'static str, count: &'static str },
}

/// A whole tensor.
pub(super) const fn all(name: &'static str) -> Stored {
    Stored { name, rows: Rows::All }
}

/// `count` blocks of `block` rows, the first at `start`, `stride` apart.
pub(super) const fn blocks(
    name: &'static str,
    start: &'static str,
    block: &'static str,
    stride: &'static str,
    count: &'static str,
) -> Stored {
    Stored { name, rows: Rows::Blocks { start, block, stride, count } }
}

/// Places a role: in the first place known to its family, or else usual, whose tensors the
/// checkpoint has; without a checkpoint in the first.
pub(super) fn views(
    family: &Family,
    prefix: &str,
    d: &Descriptor,
    tensors: Option<&TensorIndex>,
    role: &mut Role,
) {
    let known = family.tensors.iter().chain(USUAL).filter(|(name, _)| *name == role.name);
    let mut first = None;
    for (_, stored) in known {
        role.views = stored.iter().map(|s| view(*s, prefix, d, role)).collect();
        let there = |index: &TensorIndex| {
            let layer = role.instances().into_iter().next().flatten();
            role.tensors(layer).iter().all(|(name, _)| index.names.contains(name))
        };
        if tensors.is_none_or(there) {
            return;
        }
        first.get_or_insert_with(|| role.views.clone());
    }
    role.views = first.unwrap_or_default();
}

fn view(stored: Stored, prefix: &str, d: &Descriptor, role: &Role) -> View {
    let tensor = match (role.name, &role.scope) {
        (RoleName::LmHead, _) => stored.name.to_owned(),
        (_, Scope::Layers(_)) => format!("{prefix}layers.{{layer}}.{}", stored.name),
        (_, Scope::Model) => format!("{prefix}{}", stored.name),
    };
    let value = |term| d.evaluate(term).unwrap_or_default();
    let rows = match stored.rows {
        Rows::All => RowPattern::All,
        Rows::Blocks { start, block, stride, count } => RowPattern::Blocks {
            start: value(start),
            block: value(block),
            stride: value(stride),
            count: value(count),
        },
    };
    View { tensor, rows }
}

const FUSED_EXPERTS: &str = "mlp.experts.gate_up_proj";

/// The places that most families use.
const USUAL: &[(RoleName, &[Stored])] = &[
    (RoleName::Embed, &[all(EMBED)]),
    (RoleName::LmHead, &[all(HEAD)]),
    (RoleName::FinalNorm, &[all("norm.weight")]),
    (RoleName::InputNorm, &[all("input_layernorm.weight")]),
    (RoleName::PostNorm, &[all("post_attention_layernorm.weight")]),
    (RoleName::AttnQ, &[all("self_attn.q_proj.weight")]),
    (RoleName::AttnK, &[all("self_attn.k_proj.weight")]),
    (RoleName::AttnV, &[all("self_attn.v_proj.weight")]),
    (RoleName::AttnO, &[all("self_attn.o_proj.weight")]),
    (RoleName::AttnQNorm, &[all("self_attn.q_norm.weight")]),
    (RoleName::AttnKNorm, &[all("self_attn.k_norm.weight")]),
    (RoleName::AttnQBias, &[all("self_attn.q_proj.bias")]),
    (RoleName::AttnKBias, &[all("self_attn.k_proj.bias")]),
    (RoleName::AttnVBias, &[all("self_attn.v_proj.bias")]),
    (RoleName::MlaQ, &[all("self_attn.q_proj.weight")]),
    (RoleName::MlaQA, &[all("self_attn.q_a_proj.weight")]),
    (RoleName::MlaQANorm, &[all("self_attn.q_a_layernorm.weight")]),
    (RoleName::MlaQB, &[all("self_attn.q_b_proj.weight")]),
    (RoleName::MlaKvA, &[all("self_attn.kv_a_proj_with_mqa.weight")]),
    (RoleName::MlaKvANorm, &[all("self_attn.kv_a_layernorm.weight")]),
    (RoleName::MlaKvB, &[all("self_attn.kv_b_proj.weight")]),
    (RoleName::MlaO, &[all("self_attn.o_proj.weight")]),
    (RoleName::GdnQkv, &[all("linear_attn.in_proj_qkv.weight")]),
    (RoleName::GdnZ, &[all("linear_attn.in_proj_z.weight")]),
    (RoleName::GdnA, &[all("linear_attn.in_proj_a.weight")]),
    (RoleName::GdnB, &[all("linear_attn.in_proj_b.weight")]),
    (RoleName::GdnConv, &[all("linear_attn.conv1d.weight")]),
    (RoleName::GdnDtBias, &[all("linear_attn.dt_bias")]),
    (RoleName::GdnALog, &[all("linear_attn.A_log")]),
    (RoleName::GdnNorm, &[all("linear_attn.norm.weight")]),
    (RoleName::GdnOut, &[all("linear_attn.out_proj.weight")]),
    (RoleName::MlpGate, &[all("mlp.gate_proj.weight")]),
    (RoleName::MlpUp, &[all("mlp.up_proj.weight")]),
    (RoleName::MlpDown, &[all("mlp.down_proj.weight")]),
    (RoleName::MoeRouter, &[all("mlp.gate.weight")]),
    (RoleName::MoeGate, &[all("mlp.experts.{expert}.gate_proj.weight")]),
    (RoleName::MoeGate, &[fused("0")]),
    (RoleName::MoeUp, &[all("mlp.experts.{expert}.up_proj.weight")]),
    (RoleName::MoeUp, &[fused("moe_intermediate")]),
    (RoleName::MoeDown, &[all("mlp.experts.{expert}.down_proj.weight")]),
    (RoleName::MoeDown, &[all("mlp.experts.down_proj")]),
    (RoleName::SharedGate, &[all("mlp.shared_expert.gate_proj.weight")]),
    (RoleName::SharedUp, &[all("mlp.shared_expert.up_proj.weight")]),
    (RoleName::SharedDown, &[all("mlp.shared_expert.down_proj.weight")]),
    (RoleName::SharedScale, &[all("mlp.shared_expert_gate.weight")]),
];

/// The same places of the experts, the fused ones first.
pub(super) const EXPERTS_FUSED_FIRST: &[(RoleName, &[Stored])] = &[
    (RoleName::MoeGate, &[fused("0")]),
    (RoleName::MoeUp, &[fused("moe_intermediate")]),
    (RoleName::MoeDown, &[all("mlp.experts.down_proj")]),
];

/// Half of every expert's rows in `[experts, gate then up, hidden]`.
const fn fused(start: &'static str) -> Stored {
    blocks(FUSED_EXPERTS, start, "moe_intermediate", "2*moe_intermediate", "moe_experts")
}
