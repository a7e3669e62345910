//! Why a placement was refused.

use crate::descriptor::{RoleName, ShardRule};
use crate::tensor::PartError;

/// A model cannot be placed as asked. Found while planning, before any weight is read.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum PlacementError {
    #[error("a placement needs at least one device, one stage, and one rank each way")]
    NoRanks,
    #[error("{found} ranks are asked for; a placement has at most {limit}")]
    TooManyRanks { found: u128, limit: usize },
    #[error(
        "{named} devices for {} of {}: name {} devices, or one that all ranks share",
        counted(*stages, "stage"), counted(*group, "rank"), stages * group
    )]
    DeviceCount { named: usize, stages: usize, group: usize },
    #[error(
        "{named} devices make no whole stages of {group} ranks: name a multiple of {group}, or one \
         that all ranks share"
    )]
    PartOfStage { named: usize, group: usize },
    #[error(
        "tensor parallel {tensor} with expert parallel {expert}: an expert is kept whole, so the \
         expert ranks must be a multiple of the tensor ranks"
    )]
    Subgroups { tensor: usize, expert: usize },
    #[error("{stages} stages for {layers} layers: a stage needs at least one layer")]
    Stages { stages: usize, layers: usize },
    #[error("expert parallel {ranks}: the model has no experts to divide")]
    NoExperts { ranks: usize },
    #[error("tensor parallel {ranks}: the descriptor's shard rules divide nothing")]
    NothingDivided { ranks: usize },
    #[error("`{dimension}` = {count} cannot be divided among {ranks} ranks{remedy}")]
    Indivisible { dimension: &'static str, count: usize, ranks: usize, remedy: String },
    #[error(
        "role `{role}`: the shard rule `{rule}` does not cover `{dimension}`, which `{other}` divides \
         (axis {axis} = {term})"
    )]
    NotCovered {
        role: RoleName,
        rule: ShardRule,
        dimension: &'static str,
        axis: usize,
        term: String,
        other: RoleName,
    },
    #[error(
        "role `{role}`: the shard rule `{rule}` divides it, and every rank chooses among all experts"
    )]
    RouterDivided { role: RoleName, rule: ShardRule },
    #[error("role `{role}` is packed and cannot be divided among {ranks} ranks: {why}")]
    Packed { role: RoleName, ranks: usize, why: PartError },
    #[error("role `{role}`: the shard rule `{rule}` finds nothing to divide in [{shape}]")]
    Rule { role: RoleName, rule: ShardRule, shape: String },
}

fn counted(count: usize, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}
