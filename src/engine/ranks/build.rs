//! Ranks as threads of this process.

use super::rewrite::rewrite;
use crate::backend::cpu::{BLOCK_TOKENS, CpuModel, CpuOptions};
use crate::backend::ranks::{Layout, Link, Member, RankedModel, World};
use crate::backend::{DeviceModel, Fusion, Plan, WeightRef, fuse};
use crate::engine::{EngineError, check};
use crate::placement::{Placement, Rank};
use crate::tensor::Weight;
use std::collections::HashMap;
use std::sync::Arc;

/// The ranks of a placement, each with its plan and its parts of the weights. `whole` is the plan of one
/// device before fusions, which may not reach over the end of a stage.
///
/// # Errors
/// A shape that a region does not support, or shard rules that do not fit together.
pub(in crate::engine) fn ranked_model(
    whole: &Plan,
    fusions: &[Fusion],
    placement: &Placement,
    weights: &HashMap<WeightRef, Weight>,
    options: &CpuOptions,
) -> Result<RankedModel, EngineError> {
    let group = placement.group_ranks();
    // Stages follow one another, the ranks of one run at the same time.
    let available = || std::thread::available_parallelism().map_or(1, usize::from);
    let threads = (options.threads.unwrap_or_else(available) / group).max(1);
    let options = CpuOptions { threads: Some(threads), ..*options };
    let world = world(placement);
    let mut ranks: Vec<Box<dyn DeviceModel>> = Vec::new();
    let mut layouts = Vec::new();
    for rank in placement.ranks() {
        let own = rewrite(whole, placement, rank).map_err(EngineError::Unsupported)?;
        let link = link(placement, rank, &world);
        let plan = fuse(own.plan, fusions);
        let parts = parts(&plan, placement, rank, weights)?;
        let model = CpuModel::of_rank(plan, parts, &options, link)
            .map_err(|e| EngineError::Unsupported(format!("rank {}: {e}", rank.rank)))?;
        ranks.push(Box::new(model));
        layouts.push(own.layout);
    }
    let whole = fuse(whole.clone(), fusions);
    let layout = Layout { whole, ranks: layouts, page_tokens: BLOCK_TOKENS };
    Ok(RankedModel::new(ranks, layout, world))
}

/// Tensor groups of every stage, then one expert group per stage.
fn world(placement: &Placement) -> Arc<World> {
    let (stages, group) = (placement.stages.len(), placement.group_ranks());
    let tensor = vec![placement.tensor; stages * (group / placement.tensor)];
    let expert = vec![group; stages];
    World::new([tensor, expert].concat(), placement.devices.len())
}

fn link(placement: &Placement, rank: Rank, world: &Arc<World>) -> Link {
    let (stages, group) = (placement.stages.len(), placement.group_ranks());
    let per_stage = group / placement.tensor;
    let tensor = Member {
        group: rank.stage * per_stage + rank.index / placement.tensor,
        index: rank.index % placement.tensor,
    };
    let expert = Member { group: stages * per_stage + rank.stage, index: rank.index };
    let next = (rank.stage + 1 < stages).then_some(rank.rank + group);
    Link { world: Arc::clone(world), tensor, expert, rank: rank.rank, next }
}

/// A rank's parts of the weights that its plan names.
fn parts(
    plan: &Plan,
    placement: &Placement,
    rank: Rank,
    weights: &HashMap<WeightRef, Weight>,
) -> Result<HashMap<WeightRef, Weight>, EngineError> {
    let named = plan.all_ops().flat_map(|op| check::named(&op.kind));
    let part = |weight: WeightRef| {
        let whole = weights.get(&weight)?;
        let part = match placement.slice(weight.role, rank.index) {
            Some(slice) if !slice.is_whole() => {
                let [rows, columns] = slice.matrix();
                whole.part(&rows.ranges, &columns.ranges)
            }
            _ => Ok(whole.clone()),
        };
        let refuse = |e| EngineError::Unsupported(format!("`{}`: {e}", weight.role));
        Some(part.map(|part| (weight, part)).map_err(refuse))
    };
    named.filter_map(part).collect()
}
