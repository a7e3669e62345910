//! Coverage: a dimension that one role divides is divided wherever it stands, but for the router.

use super::PlacementError;
use super::role_slice::divided_axis;
use super::term::{Division, Term};
use crate::descriptor::{Descriptor, Role, RoleName};

/// Refuses a descriptor with a dimension that some role's rule divides and another role's leaves
/// whole: the parts would not fit together. The router stays whole.
pub(super) fn check(
    d: &Descriptor,
    takes_part: impl Fn(&Role) -> bool,
) -> Result<(), PlacementError> {
    let divided: Vec<(&'static str, &Role)> = d
        .roles
        .iter()
        .filter(|role| takes_part(role))
        .filter_map(|role| Some((role, divided_axis(role)?)))
        .flat_map(|(role, axis)| {
            let term = Term::read(d, &role.shape_terms[axis]);
            term.divisible().map(|(name, _)| (name, role)).collect::<Vec<_>>()
        })
        .collect();
    for role in &d.roles {
        let own = divided_axis(role).filter(|_| takes_part(role));
        if own.is_some() && role.name == RoleName::MoeRouter {
            return Err(PlacementError::RouterDivided { role: role.name, rule: role.shard });
        }
        for (axis, text) in role.shape_terms.iter().enumerate().filter(|(a, _)| Some(*a) != own) {
            for (dimension, division) in Term::read(d, text).divisible() {
                if division == Division::Experts && role.name == RoleName::MoeRouter {
                    // Every rank chooses among all experts.
                    continue;
                }
                if let Some((_, other)) = divided.iter().find(|(name, _)| *name == dimension) {
                    return Err(PlacementError::NotCovered {
                        role: role.name,
                        rule: role.shard,
                        dimension,
                        axis,
                        term: text.clone(),
                        other: other.name,
                    });
                }
            }
        }
    }
    Ok(())
}
