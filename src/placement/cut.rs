//! Where a reduction is cut between ranks, and whether the cut lies on its tree.

use super::role_slice::divided_axis;
use crate::descriptor::{Descriptor, Role, RoleName, ShardRule};
use crate::tensor::segments;

/// A reduction that the ranks of a group divide.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cut {
    /// The role whose inputs (or experts) are divided.
    pub role: RoleName,
    /// Ranks that divide it.
    pub ways: usize,
    /// Extent of the reduction before it is divided.
    pub extent: usize,
    pub tree: Tree,
}

/// The reduction tree of a cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tree {
    /// K in this many segments, added as a binary tree.
    Segments(usize),
    /// Experts by id, padded to a power of two.
    Experts,
}

impl Cut {
    /// The cut of a role's reduction among `ways` ranks; `None` if its rule cuts none.
    pub(super) fn of(role: &Role, ways: usize) -> Option<Cut> {
        let extent = role.shape.get(divided_axis(role)?).copied()?;
        let tree = match role.shard {
            ShardRule::InDim => Tree::Segments(segments(extent)),
            // What the last product of every expert gives is added.
            ShardRule::OutExperts if role.name == RoleName::MoeDown => Tree::Experts,
            _ => return None,
        };
        (ways > 1).then_some(Cut { role: role.name, ways, extent, tree })
    }

    /// Whether every rank holds a whole subtree, so that adding the ranks' sums as a tree gives the
    /// bits of one device.
    pub fn is_subtree(&self) -> bool {
        match self.tree {
            Tree::Segments(segments) => segments.is_multiple_of(self.ways),
            Tree::Experts => (self.extent / self.ways).is_power_of_two(),
        }
    }

    /// Segments that each rank sums; 1 where a rank holds no whole subtree.
    pub fn segments_per_rank(&self) -> usize {
        match self.tree {
            Tree::Segments(segments) if self.is_subtree() => segments / self.ways,
            _ => 1,
        }
    }
}

/// Every cut of a descriptor's reductions.
pub(super) fn cuts(d: &Descriptor, ways: impl Fn(&Role) -> usize) -> Vec<Cut> {
    d.roles.iter().filter_map(|role| Cut::of(role, ways(role))).collect()
}
