//! Where ranks meet: what they exchange in one forward, and how much.

use super::RankGroup;
use crate::descriptor::{Descriptor, Role, RoleName, ShardRule};
use std::fmt;

/// What ranks do together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum CollectiveKind {
    /// Every rank gets the sum of what all have.
    AllReduce(RankGroup),
    /// Every rank gets the parts of all.
    AllGather(RankGroup),
    /// Every rank of a stage gives the residual to its counterpart in the next.
    StageTransfer,
}

impl CollectiveKind {
    /// The ranks that meet, in words.
    pub fn group(self) -> &'static str {
        match self {
            CollectiveKind::AllReduce(group) | CollectiveKind::AllGather(group) => group.as_str(),
            CollectiveKind::StageTransfer => "stages",
        }
    }
}

impl fmt::Display for CollectiveKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            CollectiveKind::AllReduce(_) => "all_reduce",
            CollectiveKind::AllGather(_) => "all_gather",
            CollectiveKind::StageTransfer => "stage_transfer",
        })
    }
}

/// A place of the plan where ranks meet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Collective {
    pub kind: CollectiveKind,
    /// The role whose product it completes; `None` between stages.
    pub after: Option<RoleName>,
    /// Ranks that meet at a time.
    pub ranks: usize,
    /// Elements that a rank has of a token afterwards; logits only of tokens whose logits are wanted.
    pub elements_per_token: usize,
    /// How often in one forward.
    pub per_forward: usize,
}

/// Every collective of one forward: after each product over part of its inputs, after the embedding,
/// after the last product of divided experts, before logits, between stages.
pub(super) fn collectives(
    d: &Descriptor,
    ways: impl Fn(&Role) -> usize,
    stages: usize,
) -> Vec<Collective> {
    let completes = |role: &Role| match (role.name, role.shard) {
        (RoleName::Embed, ShardRule::OutDim) => {
            Some((CollectiveKind::AllReduce(RankGroup::Tensor), d.hidden))
        }
        (RoleName::LmHead, ShardRule::OutDim) => {
            Some((CollectiveKind::AllGather(RankGroup::Tensor), d.vocab))
        }
        (RoleName::MoeDown, ShardRule::OutExperts) => {
            Some((CollectiveKind::AllReduce(RankGroup::Expert), d.hidden))
        }
        (_, ShardRule::InDim) => {
            Some((CollectiveKind::AllReduce(RankGroup::Tensor), *role.shape.first()?))
        }
        _ => None,
    };
    let of_role = |role: &Role| {
        let (kind, elements_per_token) = completes(role).filter(|_| ways(role) > 1)?;
        let (after, ranks, per_forward) = (Some(role.name), ways(role), role.copies());
        Some(Collective { kind, after, ranks, elements_per_token, per_forward })
    };
    let transfer = (stages > 1).then_some(Collective {
        kind: CollectiveKind::StageTransfer,
        after: None,
        ranks: 2,
        elements_per_token: d.hidden,
        per_forward: stages - 1,
    });
    d.roles.iter().filter_map(of_role).chain(transfer).collect()
}
