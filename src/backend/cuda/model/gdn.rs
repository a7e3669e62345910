//! Regions of the gated delta net on the device.

use super::activations::View;
use super::exec::{Executor, Shape, pointer};
use super::launcher::{Launcher, grid};
use crate::backend::cuda::CudaError;
use crate::backend::cuda::launch::{Argument, Launch};
use crate::backend::{OpKind, Region, WeightRef};
use crate::descriptor::GatedDeltaNet;

/// Value columns of one block.
const COLUMNS: usize = 32;
/// Rows of weights and of transposed keys in shared memory, as in `kernels/gdn_core.cu`.
const WEIGHT_PITCH: usize = 68;
const TILE_PITCH: usize = 72;
/// Largest heads and most taps that the joined kernels of the inputs take, for one row and for several.
const ROW_CHANNELS: usize = 512;
const ROWS_CHANNELS: usize = 128;
const ROWS_TAPS: usize = 4;

/// Key dimensions that the kernels of chunks are instanced for, in `kernels/gdn_chunk.cu`.
const CHUNKED_KEY_DIMS: [usize; 3] = [16, 32, 128];
/// A 64 × 64 matrix of BF16, what a tile and head prepare to (four of them), and its rates.
const SQUARE_BYTES: usize = 64 * 64 * 2;
pub(super) const CHUNK_BYTES: usize = 4 * SQUARE_BYTES;
pub(super) const RATES_BYTES: usize = 64 * 16;

/// Whether several rows of a layer are done by chunks on the matrix units.
pub(super) fn is_chunked(launcher: &Launcher, dims: &GatedDeltaNet) -> bool {
    launcher.fast
        && launcher.round
        && CHUNKED_KEY_DIMS.contains(&dims.key_dim)
        && dims.value_dim.is_multiple_of(16)
        && chunk_shared_bytes(dims.key_dim) <= launcher.device.facts().block_shared_bytes
}

/// Shared memory of a block that walks the chunks: two stages, as `StageLayout` in the kernel.
fn chunk_shared_bytes(key_dim: usize) -> usize {
    2 * (2 * 64 * key_dim * 2 + CHUNK_BYTES + SQUARE_BYTES + RATES_BYTES)
}

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
        self.keep_columns(x, slot, shape)
    }

    /// The inputs of this step become history, as many of each span as the ring holds.
    fn keep_columns(&self, x: View, slot: usize, shape: &Shape) -> Result<(), CudaError> {
        let layer = &self.states.gdn[slot];
        let [x0, x1] = pointer(x);
        let arguments = vec![Argument::Block(shape.step), x0, x1, self.slot(slot)];
        let pieces = layer.spec.dims.channels().div_ceil(256) as u32;
        let rows = shape.span_rows.min(layer.ring) as u32;
        let blocks = grid(pieces, rows, shape.spans as u32, 256);
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

    /// Convolution, activation and preparation in one launch; `false` if no kernel takes the shape.
    pub(super) fn gdn_inputs(
        &self,
        conv: &OpKind,
        prepare: &OpKind,
        shape: &Shape,
        views: &[View],
    ) -> Result<bool, CudaError> {
        let (
            OpKind::GdnConv1d { x, weight, slot, .. },
            OpKind::GdnPrepare { a, b, a_log, dt_bias, q, k, v, log_decay, beta, .. },
        ) = (conv, prepare)
        else {
            unreachable!("nodes join a convolution with its preparation")
        };
        let d = self.states.gdn[*slot].spec.dims;
        let largest = d.key_dim.max(d.value_dim);
        let fits = if shape.several {
            largest <= ROWS_CHANNELS && d.conv_width <= ROWS_TAPS
        } else {
            largest <= ROW_CHANNELS
        };
        if !fits {
            return Ok(false);
        }
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
        let heads = (2 * d.key_heads + d.value_heads) as u32;
        if shape.several {
            let blocks = grid(heads + 1, shape.rows.div_ceil(64) as u32, 1, 128);
            self.launch("gdn_inputs", "gdn_inputs_rows", blocks, arguments)?;
            self.keep_columns(views[x.0], *slot, shape)?;
        } else {
            // Four warps for the channels, one for the rates.
            let blocks = grid(heads, shape.rows as u32, 1, 160);
            self.launch("gdn_inputs", "gdn_inputs", blocks, arguments)?;
        }
        Ok(true)
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
        if shape.several && is_chunked(self.launcher, &d) {
            self.gdn_chunks(op, shape, views)?;
        } else if shape.several {
            let dots = Argument::U64(self.workspace.dots);
            let running = Argument::U64(self.workspace.running);
            let mut arguments = vec![step];
            arguments.extend([q, k, log_decay].map(address));
            arguments.extend([dots, running, self.slot(slot)]);
            let blocks = grid(shape.tiles as u32, d.key_heads as u32, 1, 256);
            let decays = 64 * (d.value_heads / d.key_heads);
            let shared_bytes = (4 * (2 * d.key_dim * WEIGHT_PITCH + decays)) as u32;
            self.launch("gdn_core", "gdn_dots", Launch { shared_bytes, ..blocks }, arguments)?;
            let mut arguments = vec![step];
            arguments.extend([q, k, v, beta].map(address));
            arguments.extend([dots, running, o0, o1, self.slot(slot)]);
            let blocks = grid(pieces, d.value_heads as u32, shape.spans as u32, 256);
            // As `CoreMemory` in the kernel.
            let weights = 64 * (2 * WEIGHT_PITCH).max((d.key_dim + 7) & !3);
            let floats = d.key_dim * 32 + weights + 64 * 32 + 16 * 32 + 3 * 64;
            let shared_bytes = (512 + 4 * floats + 2 * d.key_dim * TILE_PITCH * element) as u32;
            self.launch("gdn_core", "gdn_core_rows", Launch { shared_bytes, ..blocks }, arguments)?;
        }
        if shape.single {
            let mut arguments = vec![step];
            arguments.extend([q, k, v, log_decay, beta].map(address));
            arguments.extend([o0, o1, self.slot(slot)]);
            let blocks = grid(pieces, d.value_heads as u32, shape.spans as u32, 256);
            let floats = (d.key_dim + 64) * 32;
            let shared_bytes = (4 * floats + 64 * (d.key_dim * element + 16)) as u32;
            self.launch("gdn_core", "gdn_core_row", Launch { shared_bytes, ..blocks }, arguments)?;
        }
        if shape.several {
            self.keep_rows(views[k.0], slot, shape)?;
        }
        Ok(())
    }

    /// Spans of several rows by chunks: what depends on no state for all of them, then the walk.
    fn gdn_chunks(&self, op: &OpKind, shape: &Shape, views: &[View]) -> Result<(), CudaError> {
        let OpKind::GdnCore { q, k, v, log_decay, beta, slot, out } = *op else {
            unreachable!("called for gdn_core")
        };
        let d = self.states.gdn[slot].spec.dims;
        let address = |buf: crate::backend::Buf| Argument::U64(views[buf.0].address);
        let workspace = [self.workspace.chunks, self.workspace.rates, self.workspace.running]
            .map(Argument::U64);
        let [o0, o1] = pointer(views[out.0]);
        let step = Argument::Block(shape.step);
        let mut arguments = vec![step];
        arguments.extend([q, k, log_decay, beta].map(address));
        arguments.extend(workspace);
        arguments.push(self.slot(slot));
        let blocks = grid(shape.tiles as u32, d.value_heads as u32, 1, 128);
        // Keys and queries, whose place T takes; A in two parts; four blocks of 16 rows of 20 floats.
        let rows = (2 * 64 * d.key_dim * 2).max(2 * SQUARE_BYTES);
        let shared_bytes = (rows + 2 * SQUARE_BYTES + 4 * 16 * 20 * 4) as u32;
        let entry = format!("gdn_chunk_prepare_fast_d{}", d.key_dim);
        let launch = Launch { shared_bytes, ..blocks };
        // SAFETY: as `Executor::launch`; the workspace has room for the step's tiles.
        unsafe { self.launcher.run("gdn_chunk", &entry, launch, arguments)? };

        let mut arguments = vec![step];
        arguments.extend([q, k, v].map(address));
        arguments.extend(&workspace[..2]);
        arguments.extend([o0, o1, self.slot(slot)]);
        let pieces = d.value_dim.div_ceil(64) as u32;
        let blocks = grid(pieces, d.value_heads as u32, shape.spans as u32, 128);
        let shared_bytes = chunk_shared_bytes(d.key_dim) as u32;
        let entry = format!("gdn_chunk_core_fast_d{}", d.key_dim);
        let launch = Launch { shared_bytes, ..blocks };
        // SAFETY: as above.
        unsafe { self.launcher.run("gdn_chunk", &entry, launch, arguments) }
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
