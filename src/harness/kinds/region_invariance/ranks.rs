//! Regions that take several ranks: a plan of one operation on each.

use super::subject::{Input, Subject, VOCAB};
use crate::backend::cpu::{BLOCK_TOKENS, CpuModel, CpuOptions, Isa};
use crate::backend::ranks::{Layout, Link, Member, RankLayout, RankedModel, World};
use crate::backend::{Buf, BufferSpec, DeviceModel, Op, OpKind, Plan, Policy, RankGroup, Region};
use crate::harness::kind::Cell;
use crate::placement::AxisSlice;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// The input of every rank, `width` columns each, side by side.
const X: Buf = Buf(0);
/// What a gather or a transfer gives.
const Y: Buf = Buf(1);

/// The region with the shapes of a cell; `empty` is a plan without operations.
pub(super) fn subject(
    region: Region,
    cell: &Cell,
    policy: Policy,
    threads: usize,
    empty: Plan,
) -> Result<Subject, String> {
    let (ranks, width) = (cell.read("ranks")?, cell.read::<usize>("width")?);
    let parts = if region == Region::StageTransfer { 1 } else { ranks };
    let threads = Some((threads / ranks).max(1));
    let options = CpuOptions { policy, isa: Isa::detect(), threads, poison: true };
    Ok(Subject {
        region,
        model: model(region, ranks, width, empty, &options)?,
        prefix: None,
        prefix_rows: 0,
        rows: cell.read("tokens")?,
        inputs: vec![Input::activation(X, parts * width)],
        outputs: vec![if region == Region::AllReduce { X } else { Y }],
        vocab: VOCAB,
        round: policy.rounds_to_bf16(),
    })
}

/// Ranks that execute `region` over rows of `width` values each.
fn model(
    region: Region,
    ranks: usize,
    width: usize,
    empty: Plan,
    options: &CpuOptions,
) -> Result<Box<dyn DeviceModel>, String> {
    let stages = region == Region::StageTransfer;
    let total = if stages { width } else { ranks * width };
    let named = |name: &str, width| BufferSpec { name: name.to_owned(), width };
    let whole = Plan { buffers: vec![named("x", total), named("y", total)], ..empty };
    let world = World::new(vec![if stages { 1 } else { ranks }], ranks);
    let mut models: Vec<Box<dyn DeviceModel>> = Vec::new();
    let mut layouts = Vec::new();
    for rank in 0..ranks {
        let own = AxisSlice {
            ranges: std::iter::once(rank * width..(rank + 1) * width).collect(),
            of: total,
        };
        let all = Some(AxisSlice::whole(total));
        let (columns, kinds) = match region {
            Region::AllReduce => {
                let kind = OpKind::AllReduce { x: X, group: RankGroup::Tensor };
                (vec![Some(own), None], vec![kind])
            }
            Region::AllGather => {
                let kind = OpKind::AllGather { x: X, group: RankGroup::Tensor, out: Y };
                (vec![Some(own), all], vec![kind])
            }
            _ => {
                // The first rank has the rows, every other one hands on what it takes.
                let (buf, first) = if rank == 0 { (X, true) } else { (Y, false) };
                let receive = (!first).then_some(OpKind::StageReceive { out: buf });
                let send = (rank + 1 < ranks).then_some(OpKind::StageSend { x: buf });
                let columns = if first { vec![all, None] } else { vec![None, all] };
                (columns, receive.into_iter().chain(send).collect())
            }
        };
        let width = |c: &Option<AxisSlice>| c.as_ref().map_or(0, AxisSlice::len);
        let buffers = whole.buffers.iter().zip(&columns);
        let plan = Plan {
            buffers: buffers.map(|(b, c)| named(&b.name, width(c))).collect(),
            ops: kinds
                .into_iter()
                .map(|kind| Op { kind, layer: Some(0), taps: Vec::new() })
                .collect(),
            ..whole.clone()
        };
        let member = Member { group: 0, index: if stages { 0 } else { rank } };
        let next = (stages && rank + 1 < ranks).then_some(rank + 1);
        let link = Link { world: Arc::clone(&world), tensor: member, expert: member, rank, next };
        models.push(Box::new(CpuModel::of_rank(plan, HashMap::new(), options, link)?));
        layouts.push(RankLayout {
            stage: if stages { rank } else { 0 },
            columns,
            attention: Vec::new(),
            gdn: BTreeMap::new(),
        });
    }
    let layout = Layout { whole, ranks: layouts, page_tokens: BLOCK_TOKENS };
    Ok(Box::new(RankedModel::new(models, layout, world)))
}
