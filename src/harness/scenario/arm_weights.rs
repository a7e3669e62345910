//! Which weights an arm executes.

use super::Arm;
use crate::descriptor::{RoleName, Word as _};
use crate::harness::spec::did_you_mean;
use crate::weights::{Prefill, Recipe};
use serde::Deserialize;

/// The weights of an arm.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ArmWeights {
    /// As the model has them.
    #[default]
    Bf16,
    /// The arm's `roles` packed into four bits when the model is loaded.
    Int4,
}

impl Arm {
    /// What is packed, if anything.
    ///
    /// # Errors
    /// Keys of packed weights on an arm without, none on an arm with, or a name that is no role
    /// that can be packed.
    pub(super) fn recipe(&self) -> Result<Option<Recipe>, String> {
        if self.weights == ArmWeights::Bf16 {
            let keys = [
                ("roles", !self.roles.is_empty()),
                ("group_size", self.group_size.is_some()),
                ("prefill", self.prefill.is_some()),
            ];
            return match keys.iter().find(|(_, given)| *given) {
                Some((key, _)) => Err(format!("`{key}` needs `weights: int4`")),
                None => Ok(None),
            };
        }
        if self.roles.is_empty() {
            return Err("`weights: int4` needs `roles`".into());
        }
        let role = |name: &String| {
            RoleName::parse(name).filter(|role| role.is_projection()).ok_or_else(|| {
                let known = RoleName::ALL.iter().filter(|r| r.is_projection()).map(|r| r.as_str());
                let near = did_you_mean(name, known).map(|n| format!("; {n}")).unwrap_or_default();
                format!("`{name}` is no role that can be packed{near}")
            })
        };
        let roles = self.roles.iter().map(role).collect::<Result<_, String>>()?;
        let prefill = self.prefill.unwrap_or(Prefill::Packed);
        Ok(Some(Recipe { roles, group: self.group_size, prefill }))
    }
}
