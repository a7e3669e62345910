//! Regions of the gated delta net on the device.

use super::activations::View;
use super::exec::{Executor, Shape, pointer};
use super::launcher::grid;
use crate::backend::cuda::CudaError;
use crate::backend::cuda::launch::{Argument, Launch};
use crate::backend::{OpKind, Region, WeightRef};

/// Value columns of one block.
const COLUMNS: usize = 32;
/// Pitch of transposed rows in shared memory.
const PITCH: usize = 68;

impl Executor<'_> {
    /// As `GdnSlot` in the kernels: offsets, then sizes.
    fn slot(&self, slot: usize) -> Argument {
        let l = &self.states.gdn[slot];
        let d = l.spec.dims;
        let pair = |low: usize, high: usize| low as u64 | (high as u64) << 32;
        Argument::Block([
            l.boundary,
            l.u,
            l.decay,
            l.k,
            l.conv,
            pair(d.key_heads, d.value_heads),
            pair(d.key_dim, d.value_dim),
            pair(l.ring, d.conv_width),
        ])
    }

    pub(super) fn gdn_conv1d(
        &self,
        x: View,
        weight: WeightRef,
        slot: usize,
        out: View,
        shape: &Shape,
    ) -> Result<(), CudaError> {
        let weight = self.weights.vector(weight).address;
        let [x0, x1] = pointer(x);
        let [o0, o1] = pointer(out);
        let step = Argument::Block(shape.step);
        let arguments = vec![step, x0, x1, Argument::U64(weight), o0, o1, self.slot(slot)];
        let channels = self.states.gdn[slot].spec.dims.channels();
        let blocks = grid(channels.div_ceil(256) as u32, shape.rows as u32, 1, 256);
        self.launch("gdn_inputs", "gdn_conv1d", blocks, arguments)?;
        // The inputs of this step become history.
        let arguments = vec![step, x0, x1, self.slot(slot)];
        let blocks = grid(channels.div_ceil(256) as u32, shape.rows as u32, 1, 256);
        self.launch("gdn_inputs", "gdn_keep_columns", blocks, arguments)
    }

    pub(super) fn gdn_prepare(
        &self,
        op: &OpKind,
        shape: &Shape,
        views: &[View],
    ) -> Result<(), CudaError> {
        let OpKind::GdnPrepare { slot, qkv, a, b, a_log, dt_bias, q, k, v, log_decay, beta } = *op
        else {
            unreachable!("called for gdn_prepare")
        };
        let mut arguments = vec![Argument::Block(shape.step)];
        arguments.extend([qkv, a, b].into_iter().flat_map(|buf| pointer(views[buf.0])));
        arguments.push(Argument::U64(self.weights.vector(a_log).address));
        arguments.push(Argument::U64(self.weights.vector(dt_bias).address));
        arguments.extend([q, k, v, log_decay, beta].map(|b| Argument::U64(views[b.0].address)));
        arguments.push(self.slot(slot));
        self.launch("gdn_inputs", "gdn_prepare", grid(8, shape.rows as u32, 1, 256), arguments)
    }

    /// Convolution, activation and preparation of one row a sequence.
    pub(super) fn gdn_inputs(
        &self,
        conv: &OpKind,
        prepare: &OpKind,
        shape: &Shape,
        views: &[View],
    ) -> Result<(), CudaError> {
        let (
            OpKind::GdnConv1d { x, weight, slot, .. },
            OpKind::GdnPrepare { a, b, a_log, dt_bias, q, k, v, log_decay, beta, .. },
        ) = (conv, prepare)
        else {
            unreachable!("nodes join a convolution with its preparation")
        };
        self.enter(Region::GdnPrepare);
        let [x0, x1] = pointer(views[x.0]);
        let mut arguments = vec![
            Argument::Block(shape.step),
            x0,
            x1,
            Argument::U64(self.weights.vector(*weight).address),
        ];
        arguments.extend([a, b].into_iter().flat_map(|buf| pointer(views[buf.0])));
        arguments.push(Argument::U64(self.weights.vector(*a_log).address));
        arguments.push(Argument::U64(self.weights.vector(*dt_bias).address));
        arguments.extend([q, k, v, log_decay, beta].map(|b| Argument::U64(views[b.0].address)));
        arguments.push(self.slot(*slot));
        let d = self.states.gdn[*slot].spec.dims;
        let heads = 2 * d.key_heads + d.value_heads;
        let blocks = grid(heads as u32, shape.rows as u32, 1, 128);
        self.launch("gdn_inputs", "gdn_inputs", blocks, arguments)
    }

    pub(super) fn gdn_core(
        &self,
        op: &OpKind,
        shape: &Shape,
        views: &[View],
    ) -> Result<(), CudaError> {
        let OpKind::GdnCore { q, k, v, log_decay, beta, slot, out } = *op else {
            unreachable!("called for gdn_core")
        };
        let d = self.states.gdn[slot].spec.dims;
        let address = |buf: crate::backend::Buf| Argument::U64(views[buf.0].address);
        let [o0, o1] = pointer(views[out.0]);
        let pieces = d.value_dim.div_ceil(COLUMNS) as u32;
        let step = Argument::Block(shape.step);
        let element = if self.launcher.round { 2 } else { 4 };
        if shape.several {
            let dots = Argument::U64(self.workspace.dots);
            let running = Argument::U64(self.workspace.running);
            let arguments = vec![step, address(q), address(k), dots, self.slot(slot)];
            let blocks = grid(shape.tiles as u32, d.key_heads as u32, 1, 256);
            let shared_bytes = (2 * d.key_dim * PITCH * 4) as u32;
            self.launch("gdn_core", "gdn_dots", Launch { shared_bytes, ..blocks }, arguments)?;
            let mut arguments = vec![step];
            arguments.extend([q, k, v, log_decay, beta].map(address));
            arguments.extend([dots, running, o0, o1, self.slot(slot)]);
            let blocks = grid(pieces, d.value_heads as u32, shape.spans as u32, 128);
            let floats = d.key_dim * 32 + 64 * 65 + 64 * 32 + 16 * 32 + 128;
            let shared_bytes = (512 + 4 * floats + 2 * d.key_dim * PITCH * element) as u32;
            self.launch("gdn_core", "gdn_core_rows", Launch { shared_bytes, ..blocks }, arguments)?;
        }
        if shape.single {
            let mut arguments = vec![step];
            arguments.extend([q, k, v, log_decay, beta].map(address));
            arguments.extend([o0, o1, self.slot(slot)]);
            let blocks = grid(pieces, d.value_heads as u32, shape.spans as u32, 128);
            self.launch("gdn_core", "gdn_core_row", blocks, arguments)?;
        }
        if shape.several {
            self.keep_rows(views[k.0], slot, shape)?;
        }
        Ok(())
    }

    /// Key rows and running decays of spans of several rows, once nothing reads the old ones.
    fn keep_rows(&self, k: View, slot: usize, shape: &Shape) -> Result<(), CudaError> {
        let keys = vec![
            Argument::Block(shape.step),
            Argument::U64(k.address),
            Argument::U64(self.workspace.running),
            self.slot(slot),
        ];
        let d = self.states.gdn[slot].spec.dims;
        let width = (d.key_heads * d.key_dim).max(d.value_heads);
        let blocks = grid(width.div_ceil(256) as u32, shape.rows as u32, 1, 256);
        self.launch("gdn_inputs", "gdn_keep_rows", blocks, keys)
    }
}
