//! What is to be packed, and doing it in memory.

use super::{Artifact, PackedDigest, Prefill};
use crate::descriptor::{Descriptor, RoleName, Scope};
use crate::tensor::{Int4, Int4Error, Int4Plan, Shared, Storage, Weight, bf16_bits};
use crate::weights::WeightSet;
use crate::weights::set::Logical;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// Which roles are packed, and how.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Recipe {
    pub roles: BTreeSet<RoleName>,
    /// Values along K that share a scale; `None` takes for every role the widest of 128, 64 and 32
    /// that divides its K.
    pub group: Option<usize>,
    pub prefill: Prefill,
}

/// Why weights were not packed.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum QuantiseError {
    #[error("no role is to be quantised; name some of {}", list(.known))]
    Nothing { known: Vec<RoleName> },
    #[error("the model has no role `{role}` that can be quantised; it has {}", list(.known))]
    Role { role: RoleName, known: Vec<RoleName> },
    #[error("{}: {error}", crate::weights::resolve::label(*.role, *.layer))]
    Weight { role: RoleName, layer: Option<usize>, error: Int4Error },
    #[error("the weights are quantised already")]
    Already,
}

fn list(roles: &[RoleName]) -> String {
    let names: Vec<String> = roles.iter().map(RoleName::to_string).collect();
    names.join(", ")
}

impl Recipe {
    /// Checks the recipe against a model before any weight is read: every role exists and every
    /// matrix has extents that the format takes.
    ///
    /// # Errors
    /// The first role that does not fit.
    pub fn check(&self, descriptor: &Descriptor) -> Result<(), QuantiseError> {
        let known: Vec<RoleName> =
            descriptor.roles.iter().map(|r| r.name).filter(|r| r.is_projection()).collect();
        if self.roles.is_empty() {
            return Err(QuantiseError::Nothing { known });
        }
        for &name in &self.roles {
            let found = descriptor.roles.iter().find(|r| r.name == name && name.is_projection());
            let Some(role) = found else {
                return Err(QuantiseError::Role { role: name, known });
            };
            let (rows, cols) = role.matrix();
            // Every expert has tiles of its own.
            self.shape(rows / role.experts().unwrap_or(1), cols).map_err(|error| {
                let layer = match &role.scope {
                    Scope::Model => None,
                    Scope::Layers(layers) => layers.first().copied(),
                };
                QuantiseError::Weight { role: name, layer, error }
            })?;
        }
        Ok(())
    }

    /// The extents of a packed matrix.
    ///
    /// # Errors
    /// The format does not take them.
    pub fn shape(&self, rows: usize, cols: usize) -> Result<crate::tensor::Int4Shape, Int4Error> {
        match self.group {
            Some(group) => crate::tensor::Int4Shape::new(rows, cols, group),
            None => crate::tensor::Int4Shape::widest(rows, cols),
        }
    }

    /// How one weight is packed.
    pub fn plan(&self) -> Int4Plan {
        Int4Plan { group: self.group, keep: self.prefill == Prefill::Bf16 }
    }
}

impl WeightSet {
    /// The same weights with some roles packed. A role that is tied gets packed weights of its own;
    /// the one that it shares stays.
    ///
    /// # Errors
    /// [`QuantiseError`]: the recipe does not fit the model, or a weight cannot be packed.
    pub fn quantise(
        self,
        descriptor: &Descriptor,
        recipe: &Recipe,
    ) -> Result<WeightSet, QuantiseError> {
        if self.artifact().is_some() {
            return Err(QuantiseError::Already);
        }
        let mut packer = Packer::new(descriptor, recipe)?;
        let source = self.source().clone();
        let Logical { weights, ties } = self.into_logical();
        let packed = weights
            .into_iter()
            .map(|((role, layer), weight)| ((role, layer), packer.take(role, layer, weight)))
            .collect();
        let (logical, artifact) = packer.finish(Logical { weights: packed, ties })?;
        Ok(WeightSet::packed(logical, source, artifact))
    }

    /// The same weights with packed ones unpacked to q · s, rounded to BF16 or in FP32: the readable
    /// meaning of packed weights, and what their kernels are compared with.
    pub fn dequantised(self, round: bool) -> WeightSet {
        let source = self.source().clone();
        let Logical { weights, ties } = self.into_logical();
        let unpack = |weight: Weight| match &weight.storage {
            Storage::Int4(_) => {
                let values = weight.to_f32();
                let storage = match round {
                    true => Storage::Bf16(Shared::owned(
                        values.iter().map(|value| bf16_bits(*value)).collect(),
                    )),
                    false => Storage::F32(Shared::owned(values)),
                };
                Weight { storage, ..weight }
            }
            _ => weight,
        };
        let weights = weights.into_iter().map(|(at, weight)| (at, unpack(weight))).collect();
        WeightSet::new(Logical { weights, ties }, source)
    }
}

/// Packs weights one after the other, as a recipe says.
pub(in crate::weights) struct Packer<'a> {
    descriptor: &'a Descriptor,
    recipe: &'a Recipe,
    digest: PackedDigest,
    roles: BTreeMap<RoleName, usize>,
    problem: Option<QuantiseError>,
}

impl<'a> Packer<'a> {
    /// Checks the recipe against the model.
    ///
    /// # Errors
    /// As [`Recipe::check`].
    pub(in crate::weights) fn new(
        descriptor: &'a Descriptor,
        recipe: &'a Recipe,
    ) -> Result<Packer<'a>, QuantiseError> {
        recipe.check(descriptor)?;
        let (digest, roles) = (PackedDigest::default(), BTreeMap::new());
        Ok(Packer { descriptor, recipe, digest, roles, problem: None })
    }

    /// The weight, packed if the recipe names its role. A refusal is kept for [`Packer::finish`].
    pub(in crate::weights) fn take(
        &mut self,
        role: RoleName,
        layer: Option<usize>,
        weight: Weight,
    ) -> Weight {
        match self.recipe.roles.contains(&role) && self.problem.is_none() {
            true => self.pack(role, layer, &weight).unwrap_or(weight),
            false => weight,
        }
    }

    fn pack(&mut self, role: RoleName, layer: Option<usize>, weight: &Weight) -> Option<Weight> {
        match Int4::of(weight, self.recipe.plan()) {
            Ok(packed) => {
                if packed.prefill.is_none() {
                    weight.release();
                }
                self.digest.add(role, layer, &packed);
                self.roles.insert(role, packed.shape.group());
                let (rows, cols) = (weight.rows, weight.cols);
                Some(Weight { rows, cols, storage: Storage::Int4(packed) })
            }
            Err(error) => {
                self.problem = Some(QuantiseError::Weight { role, layer, error });
                None
            }
        }
    }

    /// Gives tied roles packed weights of their own, and says what came out.
    ///
    /// # Errors
    /// The first weight that could not be packed.
    pub(in crate::weights) fn finish(
        mut self,
        mut logical: Logical,
    ) -> Result<(Logical, Artifact), QuantiseError> {
        let tied = self.descriptor.roles.iter().filter_map(|r| Some((r.name, r.tied_to?)));
        for (role, shared) in tied.filter(|(role, _)| self.recipe.roles.contains(role)) {
            let layers: Vec<Option<usize>> =
                logical.weights.keys().filter(|(r, _)| *r == shared).map(|(_, l)| *l).collect();
            for layer in layers {
                let weight = logical.weights[&(shared, layer)].clone();
                if let Some(packed) = self.pack(role, layer, &weight) {
                    logical.weights.insert((role, layer), packed);
                }
            }
        }
        if let Some(problem) = self.problem {
            return Err(problem);
        }
        let prefill = self.recipe.prefill;
        Ok((logical, Artifact { digest: self.digest.finish(), roles: self.roles, prefill }))
    }
}
