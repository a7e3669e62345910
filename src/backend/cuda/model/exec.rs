//! Walks operations of a plan on the device.

use super::activations::View;
use super::attention::{AttentionRows, Gate};
use super::graph::Bucket;
use super::launcher::{Launcher, grid};
use super::nodes::Node;
use super::state::StateLayout;
use super::weights::DeviceWeights;
use crate::backend::cuda::CudaError;
use crate::backend::cuda::launch::Argument;
use crate::backend::{Buf, NormWeight, OpKind, Plan, Region};
use crate::descriptor::{NormStyle, RopeConvention};
use std::sync::atomic::{AtomicUsize, Ordering};

/// A step as launches see it. In a captured graph counts are upper bounds and rows past the real
/// ones exit.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    pub(super) step: [u64; 8],
    pub(super) rows: usize,
    pub(super) spans: usize,
    /// Rows of the longest span.
    pub(super) span_rows: usize,
    /// Whether some span has one row, some has several.
    pub(super) single: bool,
    pub(super) several: bool,
    /// Groups of 64 that spans of several rows touch.
    pub(super) tiles: usize,
    /// Key blocks of the longest past of a span of one row.
    pub(super) blocks: usize,
}

impl Shape {
    /// Upper bounds of a step of one row a sequence in a bucket; the record is not yet known.
    pub(super) fn decode(bucket: Bucket) -> Shape {
        Shape {
            step: [0; 8],
            rows: bucket.rows,
            spans: bucket.rows,
            span_rows: 1,
            single: true,
            several: false,
            tiles: 0,
            blocks: bucket.blocks,
        }
    }
}

/// Device memory that operations use besides buffers.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Workspace {
    pub(super) rope_inverse: u64,
    pub(super) rope_table: u64,
    pub(super) rope_half: usize,
    pub(super) partial: u64,
    pub(super) arrived: u64,
    pub(super) dots: u64,
    pub(super) running: u64,
    /// What the chunks of a gated delta net are prepared to: matrices, then rates of rows.
    pub(super) chunks: u64,
    pub(super) rates: u64,
}

/// Everything that a launch needs besides the step.
pub(super) struct Executor<'a> {
    pub(super) plan: &'a Plan,
    pub(super) launcher: &'a Launcher,
    pub(super) weights: &'a DeviceWeights,
    pub(super) states: &'a StateLayout,
    pub(super) workspace: Workspace,
    /// Index into [`Region::ALL`] of the operation under way, to attribute a fault.
    pub(super) current: &'a AtomicUsize,
}

pub(super) fn pointer(view: View) -> [Argument; 2] {
    [Argument::U64(view.address), Argument::U32(view.pitch)]
}

/// Whether 16-byte accesses reach every row of these views.
pub(super) fn wide(views: &[View]) -> Argument {
    let whole = views.iter().all(|v| {
        v.pitch.is_multiple_of(8) && v.width.is_multiple_of(8) && v.address.is_multiple_of(16)
    });
    Argument::U32(u32::from(whole))
}

impl Executor<'_> {
    /// Notes the region whose launches follow.
    pub(super) fn enter(&self, region: Region) {
        let index = Region::ALL.iter().position(|r| *r == region).unwrap_or_default();
        self.current.store(index, Ordering::Relaxed);
    }

    /// Launches one node over the rows of a step.
    pub(super) fn node(&self, node: &Node, shape: &Shape, views: &[View]) -> Result<(), CudaError> {
        let op = |i: usize| &self.plan.ops[i].kind;
        match node {
            Node::Single(i) => self.op(op(*i), shape, views),
            Node::Gemms(members) => self.gemms(members, shape, views),
            Node::GateUp(members, silu) => match op(*silu) {
                OpKind::SiluMul { out, .. } => {
                    if self.gate_up(members, views[out.0], shape, views)? {
                        return Ok(());
                    }
                    self.gemms(members, shape, views)?;
                    self.op(op(*silu), shape, views)
                }
                _ => unreachable!("nodes join projections with their activation"),
            },
            Node::ResidualNorm(add, norm) => match (op(*add), op(*norm)) {
                (OpKind::ResidualAdd { residual, x }, OpKind::RmsNorm { norm, out, .. }) => {
                    self.enter(Region::RmsNorm);
                    let (r, x, o) = (views[residual.0], views[x.0], views[out.0]);
                    let [r0, r1] = pointer(r);
                    let [x0, x1] = pointer(x);
                    let mut arguments = vec![Argument::Block(shape.step), r0, r1, x0, x1];
                    arguments.extend(self.norm_arguments(norm, o, &[r, x, o]));
                    self.launch(
                        "rms_norm",
                        "residual_rms_norm",
                        grid(shape.rows as u32, 1, 1, 256),
                        arguments,
                    )
                }
                _ => unreachable!("nodes pair a sum with the norm of it"),
            },
            Node::GdnInputs(conv, silu, prepare) => {
                if self.gdn_inputs(op(*conv), op(*prepare), shape, views)? {
                    return Ok(());
                }
                [conv, silu, prepare].iter().try_for_each(|i| self.op(op(**i), shape, views))
            }
            Node::AttentionInputs(first, count) => {
                let ops = &self.plan.ops[*first..first + count];
                self.attention_inputs(ops, shape, views)
            }
            Node::GatedAttention { core, split, .. } => match (op(*core), op(*split)) {
                (
                    OpKind::AttentionCore { q, slot, heads, out, log_sums },
                    OpKind::QGateSplit { x, head_dim, .. },
                ) => {
                    self.enter(Region::AttentionCore);
                    let gate = Gate { rows: views[x.0], first: *head_dim, stride: 2 * head_dim };
                    let log_sums = log_sums.map(|buf| views[buf.0]);
                    let io = AttentionRows {
                        q: views[q.0],
                        out: views[out.0],
                        gate: Some(gate),
                        log_sums,
                    };
                    self.attention(&io, *slot, *heads, shape)
                }
                _ => unreachable!("nodes pair attention with the split of its gate"),
            },
        }
    }

    /// Launches one operation.
    pub(super) fn op(&self, op: &OpKind, shape: &Shape, views: &[View]) -> Result<(), CudaError> {
        self.enter(op.region());
        let step = Argument::Block(shape.step);
        let view = |buf: Buf| views[buf.0];
        match *op {
            OpKind::Embedding { weight, out } => {
                let (w, o) = (self.weights.matrix(weight), view(out));
                let [o0, o1] = pointer(o);
                let arguments = vec![
                    step,
                    Argument::U64(w.address),
                    o0,
                    o1,
                    Argument::U32(o.width),
                    wide(&[o]),
                ];
                let source = if w.bf16 { "embedding_bf16" } else { "embedding_f32" };
                self.launch("elementwise", source, self.pieces(o.width, shape), arguments)
            }
            OpKind::RmsNorm { x, norm, out } => {
                let (x, o) = (view(x), view(out));
                let [x0, x1] = pointer(x);
                let mut arguments = vec![step, x0, x1];
                arguments.extend(self.norm_arguments(&norm, o, &[x, o]));
                self.launch("rms_norm", "rms_norm", grid(shape.rows as u32, 1, 1, 256), arguments)
            }
            OpKind::PerHeadNorm { x, heads, head_dim, norm } => {
                let [x0, x1] = pointer(view(x));
                let arguments = vec![
                    step,
                    x0,
                    x1,
                    Argument::U64(self.weights.vector(norm.weight).address),
                    Argument::U32(heads as u32),
                    Argument::U32(head_dim as u32),
                    Argument::F32(norm.epsilon),
                    Argument::U32(u32::from(norm.style == NormStyle::OnePlus)),
                ];
                let blocks = grid((heads as u32).div_ceil(4), shape.rows as u32, 1, 128);
                self.launch("rms_norm", "per_head_norm", blocks, arguments)
            }
            OpKind::Gemm { x, weight, out } | OpKind::GemmF32 { x, weight, out } => {
                self.product(self.weights.matrix(weight), view(x), view(out), shape.rows)
            }
            OpKind::ResidualAdd { residual, x } => {
                self.map2("residual_add", view(residual), view(x), shape)
            }
            OpKind::AttentionOutputGate { x, gate } => {
                self.map2("attention_output_gate", view(x), view(gate), shape)
            }
            OpKind::SiluMul { gate, up, out } => {
                let (g, u, o) = (view(gate), view(up), view(out));
                let [g0, g1] = pointer(g);
                let [u0, u1] = pointer(u);
                let [o0, o1] = pointer(o);
                let width = Argument::U32(o.width);
                let arguments = vec![step, g0, g1, u0, u1, o0, o1, width, wide(&[g, u, o])];
                self.launch("elementwise", "silu_mul", self.pieces(o.width, shape), arguments)
            }
            OpKind::GdnConvSilu { x } => {
                let x = view(x);
                let [x0, x1] = pointer(x);
                let arguments = vec![step, x0, x1, Argument::U32(x.width), wide(&[x])];
                self.launch("elementwise", "gdn_conv_silu", self.pieces(x.width, shape), arguments)
            }
            OpKind::QGateSplit { x, heads, head_dim, q, gate } => {
                let x = view(x);
                let mut arguments = vec![step];
                arguments.extend([x, view(q), view(gate)].into_iter().flat_map(pointer));
                arguments.push(Argument::U32(heads as u32));
                arguments.push(Argument::U32(head_dim as u32));
                self.launch("elementwise", "q_gate_split", self.pieces(x.width, shape), arguments)
            }
            OpKind::Rope { x, heads, head_dim, .. } => {
                let [x0, x1] = pointer(view(x));
                let half = self.workspace.rope_half;
                let rope = self.plan.rope.as_ref().expect("a plan with rope operations has a rope");
                let arguments = vec![
                    step,
                    x0,
                    x1,
                    Argument::U32(heads as u32),
                    Argument::U32(head_dim as u32),
                    Argument::U64(self.workspace.rope_table),
                    Argument::U32(half as u32),
                    Argument::U32(u32::from(rope.convention == RopeConvention::Interleaved)),
                ];
                let blocks = (heads * half).div_ceil(256) as u32;
                self.launch("rope", "rope", grid(blocks, shape.rows as u32, 1, 256), arguments)
            }
            OpKind::KvWrite { k, v, slot } => {
                let spec = self.states.attention[slot];
                let mut arguments = vec![step];
                arguments.extend([view(k), view(v)].into_iter().flat_map(pointer));
                arguments.push(Argument::U32(spec.kv_heads as u32));
                arguments.push(Argument::U32(spec.head_dim as u32));
                arguments.push(Argument::U64(self.states.slots[slot]));
                let blocks = (spec.kv_heads * spec.head_dim).div_ceil(256) as u32;
                self.launch("rope", "kv_write", grid(blocks, shape.rows as u32, 1, 256), arguments)
            }
            OpKind::AttentionCore { q, slot, heads, out, log_sums } => {
                let log_sums = log_sums.map(view);
                let io = AttentionRows { q: view(q), out: view(out), gate: None, log_sums };
                self.attention(&io, slot, heads, shape)
            }
            OpKind::GdnConv1d { x, weight, slot, out } => {
                self.gdn_conv1d(view(x), weight, slot, view(out), shape)
            }
            OpKind::GdnPrepare { .. } => self.gdn_prepare(op, shape, views),
            OpKind::GdnCore { .. } => self.gdn_core(op, shape, views),
            OpKind::GdnGatedNorm { x, z, norm } => {
                let weight = self.weights.vector(norm.weight);
                let heads = view(x).width as usize / weight.cols;
                let mut arguments = vec![step];
                arguments.extend([view(x), view(z)].into_iter().flat_map(pointer));
                arguments.extend([
                    Argument::U64(weight.address),
                    Argument::U32(heads as u32),
                    Argument::U32(weight.cols as u32),
                    Argument::F32(norm.epsilon),
                    Argument::U32(u32::from(weight.bf16)),
                ]);
                let blocks = grid(heads.div_ceil(4) as u32, shape.rows as u32, 1, 128);
                self.launch("gdn_gated_norm", "gdn_gated_norm", blocks, arguments)
            }
            OpKind::BiasAdd { .. }
            | OpKind::MlaLatentNorm { .. }
            | OpKind::MlaAttention { .. }
            | OpKind::MoeRouterLogits { .. }
            | OpKind::MoeRouter { .. }
            | OpKind::MoePermute { .. }
            | OpKind::MoeExperts { .. }
            | OpKind::MoeCombine { .. }
            | OpKind::MoeShared { .. } => unreachable!("refused when a model is loaded"),
            OpKind::GateUp { .. } | OpKind::ResidualNorm { .. } => {
                unreachable!("fusions of the plan are undone when a model is loaded")
            }
            OpKind::EmbeddingPart { .. }
            | OpKind::GemmPart { .. }
            | OpKind::AllReduce { .. }
            | OpKind::AllGather { .. }
            | OpKind::StageSend { .. }
            | OpKind::StageReceive { .. } => {
                unreachable!("a model of several ranks is refused when an engine is made")
            }
        }
    }

    /// Cosines and sines of the step's positions: what `rope` operations read.
    pub(super) fn rope_table(&self, shape: &Shape) -> Result<(), CudaError> {
        if self.workspace.rope_half == 0 {
            return Ok(());
        }
        self.enter(Region::Rope);
        let arguments = vec![
            Argument::Block(shape.step),
            Argument::U64(self.workspace.rope_inverse),
            Argument::U64(self.workspace.rope_table),
            Argument::U32(self.workspace.rope_half as u32),
        ];
        self.launch("rope", "rope_table", grid(shape.rows as u32, 1, 1, 128), arguments)
    }

    /// Launches a kernel of the policy's element type.
    pub(super) fn launch(
        &self,
        source: &'static str,
        op: &str,
        launch: crate::backend::cuda::Launch,
        arguments: Vec<Argument>,
    ) -> Result<(), CudaError> {
        let entry = self.launcher.typed(op);
        // SAFETY: arguments are in the order of the kernel's definition; addresses are of buffers,
        // weights and states that the model keeps alive until the stream has run.
        unsafe { self.launcher.run(source, &entry, launch, arguments) }
    }

    /// Blocks of 1024 columns by rows.
    pub(super) fn pieces(&self, width: u32, shape: &Shape) -> crate::backend::cuda::Launch {
        grid(width.div_ceil(1024), shape.rows as u32, 1, 128)
    }

    fn map2(&self, op: &str, x: View, y: View, shape: &Shape) -> Result<(), CudaError> {
        let [x0, x1] = pointer(x);
        let [y0, y1] = pointer(y);
        let arguments = vec![
            Argument::Block(shape.step),
            x0,
            x1,
            y0,
            y1,
            Argument::U32(x.width),
            wide(&[x, y]),
        ];
        self.launch("elementwise", op, self.pieces(x.width, shape), arguments)
    }

    /// weight, out, pitch, width, epsilon, style, wide.
    fn norm_arguments(&self, norm: &NormWeight, out: View, views: &[View]) -> [Argument; 7] {
        let [o0, o1] = pointer(out);
        [
            Argument::U64(self.weights.vector(norm.weight).address),
            o0,
            o1,
            Argument::U32(out.width),
            Argument::F32(norm.epsilon),
            Argument::U32(u32::from(norm.style == NormStyle::OnePlus)),
            wide(views),
        ]
    }
}
