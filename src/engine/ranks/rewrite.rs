//! The plan of a rank: the plan of one device, with this rank's widths and with collectives.
//!
//! Operations are visited in order and keep it. What a rank has of a weight decides which columns of
//! a product it has; every other operation passes the columns of its inputs on. A product over part of
//! its inputs gives part of a sum, and a collective after it makes it whole.

use super::columns::in_units;
use crate::backend::ranks::RankLayout;
use crate::backend::{Buf, BufferSpec, CacheSpec, GdnSpec, Op, OpKind, Plan, RankGroup, WeightRef};
use crate::placement::{AxisSlice, Placement, Rank};
use std::collections::BTreeMap;

mod attention;
mod experts;
mod gdn;

/// A rank's plan, and what it holds of the whole.
#[derive(Debug)]
pub(super) struct RankPlan {
    pub(super) plan: Plan,
    pub(super) layout: RankLayout,
}

/// Rewrites the plan of one device for a rank.
///
/// # Errors
/// Parts that do not fit together: a shard rule that the kind of layer does not allow.
pub(super) fn rewrite(whole: &Plan, placement: &Placement, rank: Rank) -> Result<RankPlan, String> {
    let mut r = Rewrite {
        whole,
        placement,
        index: rank.index,
        ops: Vec::new(),
        layout: RankLayout {
            stage: rank.stage,
            columns: vec![None; whole.buffers.len()],
            attention: Vec::new(),
            gdn: BTreeMap::new(),
        },
        added: Vec::new(),
        attention_slots: Vec::new(),
        gdn_slots: Vec::new(),
    };
    let last = rank.stage + 1 == placement.stages.len();
    let residual = whole.residual;
    if rank.stage > 0 {
        r.set_whole(residual)?;
        r.add(OpKind::StageReceive { out: residual });
    }
    let layers = &placement.stages[rank.stage];
    let own = |op: &&Op| op.layer.map_or(rank.stage == 0, |layer| layers.contains(&layer));
    for op in whole.ops.iter().filter(own) {
        r.op(op)?;
    }
    if !last {
        r.add(OpKind::StageSend { x: residual });
    }
    let ops = std::mem::take(&mut r.ops);
    for op in whole.head_ops.iter().filter(|_| last) {
        r.op(op)?;
    }
    Ok(r.finish(ops))
}

struct Rewrite<'a> {
    whole: &'a Plan,
    placement: &'a Placement,
    index: usize,
    ops: Vec<Op>,
    layout: RankLayout,
    /// Buffers beside those of the whole plan.
    added: Vec<BufferSpec>,
    attention_slots: Vec<CacheSpec>,
    /// Slots of the whole plan and their specs here.
    gdn_slots: Vec<(usize, GdnSpec)>,
}

type Done = Result<(), String>;

impl Rewrite<'_> {
    fn finish(self, ops: Vec<Op>) -> RankPlan {
        let widths = self.layout.columns.iter().map(|c| c.as_ref().map_or(0, AxisSlice::len));
        let named = self.whole.buffers.iter().zip(widths);
        let own = named.map(|(b, width)| BufferSpec { name: b.name.clone(), width });
        let plan = Plan {
            buffers: own.chain(self.added).collect(),
            ops,
            head_ops: self.ops,
            attention_slots: self.attention_slots,
            gdn_slots: self.gdn_slots.into_iter().map(|(_, spec)| spec).collect(),
            ..self.whole.clone()
        };
        RankPlan { plan, layout: self.layout }
    }

    fn add(&mut self, kind: OpKind) {
        self.ops.push(Op { kind, layer: None, taps: Vec::new() });
    }

    fn push(&mut self, op: &Op, kind: OpKind) -> Done {
        self.ops.push(Op { kind, ..op.clone() });
        Ok(())
    }

    /// An operation that gives part of a sum, and the collective that makes it whole.
    fn push_part(&mut self, op: &Op, kind: OpKind, x: Buf, group: RankGroup) -> Done {
        self.ops.push(Op { kind, layer: op.layer, taps: Vec::new() });
        self.push(op, OpKind::AllReduce { x, group })
    }

    fn name(&self, buf: Buf) -> &str {
        &self.whole.buffers[buf.0].name
    }

    fn get(&self, buf: Buf) -> Result<AxisSlice, String> {
        let columns = self.layout.columns[buf.0].clone();
        columns.ok_or_else(|| format!("buffer `{}` is read before it is written", self.name(buf)))
    }

    fn set(&mut self, buf: Buf, slice: AxisSlice) -> Done {
        let name = &self.whole.buffers[buf.0];
        if slice.of != name.width {
            return Err(format!("buffer `{}` is {} wide, not {}", name.name, name.width, slice.of));
        }
        match &self.layout.columns[buf.0] {
            Some(other) if *other != slice => {
                Err(format!("buffer `{}` has {:?} and {:?}", name.name, other.ranges, slice.ranges))
            }
            _ => {
                self.layout.columns[buf.0] = Some(slice);
                Ok(())
            }
        }
    }

    fn set_whole(&mut self, buf: Buf) -> Done {
        self.set(buf, AxisSlice::whole(self.whole.buffers[buf.0].width))
    }

    fn same(&self, a: Buf, b: Buf) -> Done {
        if self.get(a)? == self.get(b)? {
            return Ok(());
        }
        Err(format!("buffers `{}` and `{}` have other columns", self.name(a), self.name(b)))
    }

    fn is_whole(&self, buf: Buf) -> Done {
        if self.get(buf)?.is_whole() {
            return Ok(());
        }
        Err(format!("buffer `{}` is not whole on this rank", self.name(buf)))
    }

    fn heads(&self, buf: Buf, head_dim: usize) -> Result<AxisSlice, String> {
        in_units(&self.get(buf)?, head_dim).map_err(|e| format!("buffer `{}`: {e}", self.name(buf)))
    }

    /// Rows and columns of a matrix that this rank has.
    fn matrix(&self, weight: WeightRef) -> Result<(AxisSlice, AxisSlice), String> {
        let slice = self.placement.slice(weight.role, self.index);
        match slice.map(|s| &s.axes[..]) {
            Some([rows, columns]) => Ok((rows.clone(), columns.clone())),
            _ => Err(format!("`{}` is no matrix of the placement", weight.role)),
        }
    }

    fn op(&mut self, op: &Op) -> Done {
        let fit = |e: String| format!("region `{}`: {e}", op.kind.region());
        self.rewrite(op).map_err(fit)
    }

    fn rewrite(&mut self, op: &Op) -> Done {
        match op.kind.clone() {
            OpKind::Embedding { weight, out } => {
                let (rows, _) = self.matrix(weight)?;
                self.set_whole(out)?;
                match &rows.ranges[..] {
                    _ if rows.is_whole() => self.push(op, op.kind.clone()),
                    [range] => {
                        let part = OpKind::EmbeddingPart { weight, first_row: range.start, out };
                        self.push_part(op, part, out, RankGroup::Tensor)
                    }
                    _ => Err("rows of the embedding lie apart".to_owned()),
                }
            }
            OpKind::RmsNorm { x, out, .. } => {
                self.is_whole(x)?;
                self.set_whole(out)?;
                self.push(op, op.kind.clone())
            }
            OpKind::Gemm { x, weight, out } => self.gemm(op, x, weight, out),
            OpKind::GemmF32 { x, weight, out } if out == self.whole.logits => {
                self.head(op, x, weight, out)
            }
            OpKind::GemmF32 { x, weight, out } => {
                let (rows, columns) = self.matrix(weight)?;
                self.is_whole(x)?;
                if !columns.is_whole() {
                    return Err(format!("`{}` divides the inputs of an FP32 product", weight.role));
                }
                self.set(out, rows)?;
                self.push(op, op.kind.clone())
            }
            OpKind::ResidualAdd { residual, x } => {
                self.is_whole(residual)?;
                self.is_whole(x)?;
                self.push(op, op.kind.clone())
            }
            OpKind::SiluMul { gate, up, out } => {
                self.same(gate, up)?;
                self.set(out, self.get(gate)?)?;
                self.push(op, op.kind.clone())
            }
            OpKind::BiasAdd { x, bias } => {
                let columns = self.get(x)?;
                let slice = self.placement.slice(bias.role, self.index);
                if slice.and_then(|s| s.axes.first()) != Some(&columns) {
                    return Err(format!("`{}` has other columns than its product", bias.role));
                }
                self.push(op, op.kind.clone())
            }
            OpKind::PerHeadNorm { .. }
            | OpKind::QGateSplit { .. }
            | OpKind::Rope { .. }
            | OpKind::KvWrite { .. }
            | OpKind::AttentionCore { .. }
            | OpKind::AttentionOutputGate { .. }
            | OpKind::MlaLatentNorm { .. }
            | OpKind::MlaAttention { .. } => self.attention(op),
            OpKind::GdnConv1d { .. }
            | OpKind::GdnConvSilu { .. }
            | OpKind::GdnPrepare { .. }
            | OpKind::GdnCore { .. }
            | OpKind::GdnGatedNorm { .. } => self.gdn(op),
            OpKind::MoeRouterLogits { .. }
            | OpKind::MoeRouter { .. }
            | OpKind::MoePermute { .. }
            | OpKind::MoeExperts { .. }
            | OpKind::MoeCombine { .. }
            | OpKind::MoeShared { .. } => self.experts(op),
            OpKind::GateUp { .. } | OpKind::ResidualNorm { .. } => {
                Err("a plan is divided before it is fused".to_owned())
            }
            OpKind::EmbeddingPart { .. }
            | OpKind::GemmPart { .. }
            | OpKind::AllReduce { .. }
            | OpKind::AllGather { .. }
            | OpKind::StageSend { .. }
            | OpKind::StageReceive { .. } => {
                Err("the plan of one device has no collectives".to_owned())
            }
        }
    }

    fn gemm(&mut self, op: &Op, x: Buf, weight: WeightRef, out: Buf) -> Done {
        let (rows, columns) = self.matrix(weight)?;
        if self.get(x)? != columns {
            let name = self.name(x);
            return Err(format!("`{}` takes other columns than `{name}` has", weight.role));
        }
        self.set(out, rows)?;
        if columns.is_whole() {
            return self.push(op, OpKind::Gemm { x, weight, out });
        }
        self.is_whole(out)?;
        let cut = self.placement.cut(weight.role);
        let segments = cut.ok_or("no cut of the placement")?.segments_per_rank();
        let part = OpKind::GemmPart { x, weight, segments, out };
        self.push_part(op, part, out, RankGroup::Tensor)
    }

    /// The head: every rank has logits of some ids, all get those of all.
    fn head(&mut self, op: &Op, x: Buf, weight: WeightRef, out: Buf) -> Done {
        self.is_whole(x)?;
        let (rows, _) = self.matrix(weight)?;
        self.set_whole(out)?;
        if rows.is_whole() {
            return self.push(op, OpKind::GemmF32 { x, weight, out });
        }
        let part = Buf(self.whole.buffers.len() + self.added.len());
        let name = format!("{}_part", self.name(out));
        self.added.push(BufferSpec { name, width: rows.len() });
        let kind = OpKind::GemmF32 { x, weight, out: part };
        self.ops.push(Op { kind, layer: op.layer, taps: Vec::new() });
        self.push(op, OpKind::AllGather { x: part, group: RankGroup::Tensor, out })
    }
}
