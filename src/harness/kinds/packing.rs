//! Roles that a gate packs into four bits when it loads a model.

use crate::descriptor::{RoleName, Word as _};
use crate::harness::spec::NonEmpty;
use crate::weights::{Prefill, Recipe};
use schemars::JsonSchema;
use serde::Deserialize;
use std::collections::BTreeSet;

/// What is packed.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Packing {
    roles: NonEmpty<String>,
    /// Values along K that share a scale; without it the most that divide K, role by role.
    #[serde(default)]
    group_size: Option<usize>,
    /// What rows of a prompt read.
    #[serde(default)]
    prefill: Option<Prefill>,
}

impl Packing {
    /// How weights are packed.
    ///
    /// # Errors
    /// A sentence that names the first role that cannot be packed.
    pub(super) fn recipe(&self) -> Result<Recipe, String> {
        let roles = projections(&self.roles)?;
        let prefill = self.prefill.unwrap_or(Prefill::Packed);
        Ok(Recipe { roles, group: self.group_size, prefill })
    }

    /// As [`Packing::recipe`], where rows of a prompt are compared with decoded ones.
    ///
    /// # Errors
    /// Also weights kept for prefill: the rows would be products with other weights.
    pub(super) fn of_every_row(&self) -> Result<Recipe, String> {
        let recipe = self.recipe()?;
        match recipe.prefill {
            Prefill::Packed => Ok(recipe),
            Prefill::Bf16 => {
                Err("with `prefill: bf16` rows of a prompt and decoded rows read other \
                                  weights, so their bits differ"
                    .into())
            }
        }
    }
}

/// Roles that can be packed, by name.
///
/// # Errors
/// A sentence that names the first other.
pub(super) fn projections(names: &[String]) -> Result<BTreeSet<RoleName>, String> {
    let role = |name: &String| {
        RoleName::parse(name)
            .filter(|role| role.is_projection())
            .ok_or_else(|| format!("`{name}` is no role that can be packed"))
    };
    names.iter().map(role).collect()
}
