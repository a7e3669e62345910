//! What a rank holds of a logical weight.

use super::term::{Division, Term};
use super::{AxisSlice, PlacementError};
use crate::descriptor::{Descriptor, Role, RoleName, ShardRule};

/// The part of a logical weight that one rank of a group holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RoleSlice {
    pub role: RoleName,
    /// One per axis of the role's shape.
    pub axes: Vec<AxisSlice>,
}

impl RoleSlice {
    /// All of a role.
    pub(super) fn whole(role: &Role) -> RoleSlice {
        let axes = role.shape.iter().map(|extent| AxisSlice::whole(*extent)).collect();
        RoleSlice { role: role.name, axes }
    }

    /// The part of `role` that rank `index` of `ranks` holds by its shard rule.
    ///
    /// # Errors
    /// A dimension that does not divide, or a rule that divides nothing.
    pub(super) fn of(
        d: &Descriptor,
        role: &Role,
        index: usize,
        ranks: usize,
    ) -> Result<RoleSlice, PlacementError> {
        let mut slice = RoleSlice::whole(role);
        if let Some(axis) = divided_axis(role)
            && ranks > 1
        {
            let term = Term::read(d, &role.shape_terms[axis]);
            if !term.is_divisible(|division| allows(role.shard, division)) {
                let shape = role.shape_terms.join(", ");
                return Err(PlacementError::Rule { role: role.name, rule: role.shard, shape });
            }
            slice.axes[axis] = term.slice(index, ranks)?;
        }
        Ok(slice)
    }

    /// Its rows and columns in the weight as a matrix: a vector is one row, the matrices of experts lie
    /// one below the other.
    pub fn matrix(&self) -> [AxisSlice; 2] {
        match &self.axes[..] {
            [] => [AxisSlice::whole(1), AxisSlice::whole(1)],
            [columns] => [AxisSlice::whole(1), columns.clone()],
            [rows, columns] => [rows.clone(), columns.clone()],
            [experts, rows @ .., columns] => {
                let rows_of_one = rows.iter().map(|axis| axis.of).product();
                [experts.of_units(rows_of_one), columns.clone()]
            }
        }
    }

    /// Elements of the part.
    pub fn elements(&self) -> u64 {
        self.axes.iter().map(|axis| axis.len() as u64).product()
    }

    /// Elements that it has in common with another part of the same role.
    pub(super) fn elements_in_common(&self, other: &RoleSlice) -> u64 {
        let axes = self.axes.iter().zip(&other.axes);
        axes.map(|(own, other)| own.in_common(other) as u64).product()
    }

    /// Whether it is all of the weight.
    pub fn is_whole(&self) -> bool {
        self.axes.iter().all(AxisSlice::is_whole)
    }
}

/// The axis that a role's rule divides.
pub(super) fn divided_axis(role: &Role) -> Option<usize> {
    match role.shard {
        ShardRule::None => None,
        ShardRule::OutHeads | ShardRule::OutDim | ShardRule::OutExperts => Some(0),
        ShardRule::InDim => Some(role.shape.len().saturating_sub(1)),
    }
}

/// Whether a rule divides dimensions of this kind.
fn allows(rule: ShardRule, division: Division) -> bool {
    match rule {
        ShardRule::None => false,
        ShardRule::OutHeads => matches!(division, Division::Heads | Division::SharedHeads),
        ShardRule::OutDim => division == Division::Elements,
        ShardRule::InDim => matches!(division, Division::Heads | Division::Elements),
        ShardRule::OutExperts => division == Division::Experts,
    }
}
