//! Tensor names: where the roles of a checkpoint lie, and whether they are there.

use super::Family;
use crate::descriptor::{Descriptor, Refusal, RoleName, Scope};
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
        let embed = usual_name(RoleName::Embed);
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
            for view in &role.views {
                match &role.scope {
                    Scope::Model => _ = needed.insert(view.tensor.clone()),
                    Scope::Layers(layers) => {
                        needed.extend(layers.iter().map(|l| view.tensor_of(*l)))
                    }
                }
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
        let unclaimed = self.names.difference(&needed).find(|n| !TensorIndex::is_skipped(n));
        match unclaimed {
            Some(name) => Err(Refusal::of_file(
                &self.file,
                format!("tensor `{name}` has no place in the model that the config describes"),
            )),
            None => Ok(()),
        }
    }
}

pub(super) const HEAD: &str = "lm_head.weight";

/// The template of a role's tensor name, the prefix included.
pub(super) fn tensor_name(family: &Family, prefix: &str, role: RoleName, in_layer: bool) -> String {
    let own = family.tensors.iter().find(|(r, _)| *r == role).map(|(_, name)| *name);
    let name = own.unwrap_or_else(|| usual_name(role));
    match (role, in_layer) {
        (RoleName::LmHead, _) => name.to_owned(),
        (_, true) => format!("{prefix}layers.{{layer}}.{name}"),
        (_, false) => format!("{prefix}{name}"),
    }
}

/// The names that most families use.
fn usual_name(role: RoleName) -> &'static str {
    match role {
        RoleName::Embed => "embed_tokens.weight",
        RoleName::LmHead => HEAD,
        RoleName::FinalNorm => "norm.weight",
        RoleName::InputNorm => "input_layernorm.weight",
        RoleName::PostNorm => "post_attention_layernorm.weight",
        RoleName::AttnQ => "self_attn.q_proj.weight",
        RoleName::AttnK => "self_attn.k_proj.weight",
        RoleName::AttnV => "self_attn.v_proj.weight",
        RoleName::AttnO => "self_attn.o_proj.weight",
        RoleName::AttnQNorm => "self_attn.q_norm.weight",
        RoleName::AttnKNorm => "self_attn.k_norm.weight",
        RoleName::GdnQkv => "linear_attn.in_proj_qkv.weight",
        RoleName::GdnZ => "linear_attn.in_proj_z.weight",
        RoleName::GdnA => "linear_attn.in_proj_a.weight",
        RoleName::GdnB => "linear_attn.in_proj_b.weight",
        RoleName::GdnConv => "linear_attn.conv1d.weight",
        RoleName::GdnDtBias => "linear_attn.dt_bias",
        RoleName::GdnALog => "linear_attn.A_log",
        RoleName::GdnNorm => "linear_attn.norm.weight",
        RoleName::GdnOut => "linear_attn.out_proj.weight",
        RoleName::MlpGate => "mlp.gate_proj.weight",
        RoleName::MlpUp => "mlp.up_proj.weight",
        RoleName::MlpDown => "mlp.down_proj.weight",
    }
}
