//! Heads that several ranks hold.

use super::Placement;
use super::role_slice::divided_axis;
use super::term::Term;
use crate::descriptor::{Descriptor, Role, RoleName};

/// A role with heads that several ranks of a tensor group hold, because the ranks outnumber the heads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SharedHeads {
    pub role: RoleName,
    /// The dimension whose heads are shared.
    pub dimension: &'static str,
    /// Ranks of a tensor group that hold each head.
    pub ranks: usize,
    /// Whether the role has rows of other heads too, which are divided.
    pub partly: bool,
}

impl Placement {
    /// Roles with heads that several ranks hold.
    pub fn shared_heads(&self, d: &Descriptor) -> Vec<SharedHeads> {
        let shared = |role: &Role| {
            let term = Term::read(d, &role.shape_terms[divided_axis(role)?]);
            let (dimension, ranks, partly) = term.shared(self.ways(role))?;
            Some(SharedHeads { role: role.name, dimension, ranks, partly })
        };
        d.roles.iter().filter_map(shared).collect()
    }
}
