//! Where a step's time goes: every region's launches by themselves, captured and replayed.
//!
//! Replays of one region repeat the same writes at the same positions; what they leave in a sequence's
//! state is not what the step would leave. The sum over regions is not the step's time: neighbours
//! overlap.

use super::activations::View;
use super::exec::Shape;
use super::graph::Bucket;
use super::model::CudaModel;
use super::nodes::{Node, operations};
use super::record::HEAD_ROWS;
use super::spans::{blocks_of, own, prepare};
use crate::backend::cuda::CudaError;
use crate::backend::cuda::probe::Captured;
use crate::backend::{OpKind, Region, RegionCost, State, Step};
use std::sync::PoisonError;

/// Timed replays of every region.
const REPLAYS: usize = 7;

impl CudaModel {
    /// Times the regions of a step, one like which must have been executed before so that every
    /// kernel is loaded. States do not advance.
    pub(super) fn profile_step(
        &self,
        step: &Step<'_>,
        states: &mut [&mut dyn State],
    ) -> Result<Vec<RegionCost>, CudaError> {
        let mut states = own(states);
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        let inner = &mut *inner;
        let entries = prepare(&mut states, &step.spans)?;
        let rows = step.tokens.len();
        let blocks = blocks_of(&step.spans);
        let one_row = step.spans.iter().all(|s| s.rows.len() == 1);
        let (body, head_shape, rows_at) = match Bucket::of(rows, blocks).filter(|_| one_row) {
            Some(bucket) => {
                let pages: usize = entries.iter().map(|(p, _)| p.len()).sum();
                self.record(inner, true, HEAD_ROWS, HEAD_ROWS, pages)?;
                let bound = Shape::decode(bucket);
                self.reserve(inner, &bound, HEAD_ROWS)?;
                let all: Vec<u32> = (0..rows as u32).collect();
                let record = inner.decode.as_mut().expect("made above");
                record.fill(step.tokens, &step.spans, &entries, &all)?;
                record.upload(&self.device)?;
                let head = Shape { step: record.head_step(0), ..bound };
                (Shape { step: record.step(), ..bound }, head, record.head_rows(0))
            }
            // Of a prompt the last row's output is wanted.
            None => {
                let last = rows.saturating_sub(1) as u32;
                let body = self.begin(inner, step.tokens, &step.spans, &entries, &[last])?;
                let record = inner.other.as_ref().expect("made by `begin`");
                let head = Shape { step: record.head_step(0), rows: 1, ..body };
                (body, head, record.head_rows(0))
            }
        };
        let views = inner.activations.views();
        let executor = self.executor(&inner.scratch);
        executor.rope_table(&body)?;
        let mut costs = Vec::new();
        for region in Region::ALL {
            let nodes: Vec<&Node> =
                self.fused.iter().filter(|n| self.region_of(n) == *region).collect();
            if nodes.is_empty() {
                continue;
            }
            let captured = Captured::new(&self.device, || {
                nodes.iter().try_for_each(|node| executor.node(node, &body, &views))
            })?;
            let timing = captured.time(REPLAYS, 1)?;
            let ops = nodes.iter().flat_map(|n| operations(n)).map(|i| &self.plan.ops[i].kind);
            costs.push(RegionCost {
                region: *region,
                launches: nodes.len(),
                time_us: timing.time_us,
                bytes: ops.map(|op| self.bytes(op, rows, step, &views)).sum(),
            });
        }
        if let Some(buffers) = &inner.head {
            let head_views = buffers.views(&self.plan, &views);
            let captured = Captured::new(&self.device, || {
                executor.head(&head_shape, rows_at, &views, &head_views, buffers, true)
            })?;
            let timing = captured.time(REPLAYS, 1)?;
            let ops = self.plan.head_ops.iter().map(|op| &op.kind);
            costs.push(RegionCost {
                region: Region::GemmF32,
                launches: self.plan.head_ops.len() + 2,
                time_us: timing.time_us,
                bytes: ops.map(|op| self.bytes(op, rows, step, &head_views)).sum(),
            });
        }
        Ok(costs)
    }

    fn region_of(&self, node: &Node) -> Region {
        match node {
            Node::GatedAttention { .. } => return Region::AttentionCore,
            Node::GateUp(..) => return Region::GateUp,
            _ => {}
        }
        let last = operations(node).last().copied().unwrap_or(0);
        self.plan.ops[last].kind.region()
    }

    /// Fewest bytes that an operation moves: weights, states and buffers, each once.
    fn bytes(&self, op: &OpKind, rows: usize, step: &Step<'_>, views: &[View]) -> u64 {
        let element = if self.policy.rounds_to_bf16() { 2u64 } else { 4 };
        let buffer = |buf: crate::backend::Buf| {
            let view = views[buf.0];
            rows as u64 * u64::from(view.width) * if view.wide { 4 } else { element }
        };
        match *op {
            OpKind::Gemm { x, weight, out } | OpKind::GemmF32 { x, weight, out } => {
                let w = self.weights.matrix(weight);
                let weight = (w.rows * w.cols) as u64 * if w.bf16 { 2 } else { 4 };
                weight + buffer(x) + buffer(out)
            }
            OpKind::Embedding { out, .. } => 2 * buffer(out),
            OpKind::RmsNorm { x, out, .. } => buffer(x) + buffer(out),
            OpKind::ResidualAdd { residual, x } => 2 * buffer(residual) + buffer(x),
            OpKind::PerHeadNorm { x, .. } | OpKind::Rope { x, .. } | OpKind::GdnConvSilu { x } => {
                2 * buffer(x)
            }
            OpKind::SiluMul { gate, up, out } => buffer(gate) + buffer(up) + buffer(out),
            OpKind::QGateSplit { x, .. } => 2 * buffer(x),
            OpKind::AttentionOutputGate { x, gate } => 2 * buffer(x) + buffer(gate),
            OpKind::KvWrite { k, v, .. } => 2 * (buffer(k) + buffer(v)),
            OpKind::AttentionCore { q, slot, out, .. } => {
                let spec = self.plan.attention_slots[slot];
                let keys: usize = step.spans.iter().map(|s| s.position + s.rows.len()).sum();
                let cache = (2 * keys * spec.kv_heads * spec.head_dim) as u64 * element;
                cache + buffer(q) + buffer(out)
            }
            OpKind::GdnConv1d { x, out, slot, .. } => {
                let taps = self.plan.gdn_slots[slot].dims.conv_width as u64;
                buffer(x) * taps + buffer(out)
            }
            OpKind::GdnPrepare { qkv, q, k, v, .. } => {
                buffer(qkv) + buffer(q) + buffer(k) + buffer(v)
            }
            OpKind::GdnCore { q, k, v, out, slot, .. } => {
                let d = self.plan.gdn_slots[slot].dims;
                let open: usize = step.spans.iter().map(|s| s.position % 64).sum();
                let state = step.spans.len() * d.value_heads * d.key_dim * d.value_dim * 4;
                let rows_kept = open * (d.value_heads * d.value_dim * 4)
                    + open * d.key_heads * d.key_dim * element as usize;
                (state + rows_kept) as u64 + buffer(q) + buffer(k) + buffer(v) + buffer(out)
            }
            OpKind::GdnGatedNorm { x, z, .. } => 2 * buffer(x) + buffer(z),
            OpKind::GateUp { .. }
            | OpKind::ResidualNorm { .. }
            | OpKind::BiasAdd { .. }
            | OpKind::MlaLatentNorm { .. }
            | OpKind::MlaAttention { .. }
            | OpKind::MoeRouterLogits { .. }
            | OpKind::MoeRouter { .. }
            | OpKind::MoePermute { .. }
            | OpKind::MoeExperts { .. }
            | OpKind::MoeCombine { .. }
            | OpKind::MoeShared { .. }
            | OpKind::EmbeddingPart { .. }
            | OpKind::GemmPart { .. }
            | OpKind::AllReduce { .. }
            | OpKind::AllGather { .. }
            | OpKind::StageSend { .. }
            | OpKind::StageReceive { .. } => 0,
        }
    }
}
