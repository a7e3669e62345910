//! Region `attention_core` on the device: which kernel takes which spans.

use super::activations::View;
use super::exec::{Executor, Shape, pointer};
use super::launcher::grid;
use crate::backend::cuda::CudaError;
use crate::backend::cuda::launch::{Argument, Launch};

/// Head sizes that the matrix kernels are instanced for.
const TILED_HEAD_DIMS: [usize; 5] = [16, 48, 64, 128, 256];

/// Stages of the ring of keys and values, as instanced in `kernels/attention_core.cu`.
fn stages(head_dim: usize) -> usize {
    if head_dim == 256 { 3 } else { 4 }
}

/// Shared memory of a block of `tiles` × 16 items.
fn shared_bytes(head_dim: usize, tiles: usize) -> usize {
    let items = tiles * 16;
    items * head_dim * 2 + stages(head_dim) * 64 * head_dim * 2 + items * 256 * 2 + 2 * items * 16
}

/// Whether the matrix kernels take a head size on a device with this much shared memory a block.
///
/// It depends on nothing else: every execution of a layer takes the same road.
pub(super) fn is_tiled(round: bool, head_dim: usize, block_shared_bytes: usize) -> bool {
    round && TILED_HEAD_DIMS.contains(&head_dim) && shared_bytes(head_dim, 4) <= block_shared_bytes
}

impl Executor<'_> {
    /// Attends every row to its own past.
    pub(super) fn attention(
        &self,
        q: View,
        slot: usize,
        heads: usize,
        out: View,
        shape: &Shape,
    ) -> Result<(), CudaError> {
        let spec = self.states.attention[slot];
        let group = heads / spec.kv_heads;
        let scale = 1.0 / (spec.head_dim as f32).sqrt();
        // As `Cache` in `kernels/attention_core.cu`.
        let cache = [
            self.states.slots[slot],
            spec.kv_heads as u64 | (group as u64) << 32,
            u64::from(scale.to_bits()),
        ];
        let [q0, q1] = pointer(q);
        let [o0, o1] = pointer(out);
        let common = vec![Argument::Block(shape.step), q0, q1, o0, o1, Argument::Words(cache)];
        let limit = self.launcher.device.facts().block_shared_bytes;
        let head_dim = spec.head_dim;
        if !is_tiled(self.launcher.round, head_dim, limit) {
            let mut arguments = common;
            arguments.push(Argument::U32(head_dim as u32));
            let shared_bytes = ((2 * head_dim + 256) * 4) as u32;
            let blocks = grid(heads as u32, shape.rows as u32, 1, 32);
            return self.launch(
                "attention_core",
                "attention_serial",
                Launch { shared_bytes, ..blocks },
                arguments,
            );
        }
        if shape.several {
            let items = (shape.span_rows * group).div_ceil(64) as u32;
            let blocks = grid(items, spec.kv_heads as u32, shape.spans as u32, 256);
            let launch = Launch { shared_bytes: shared_bytes(head_dim, 4) as u32, ..blocks };
            let entry = format!("attention_rows_invariant_d{head_dim}");
            // SAFETY: as `Executor::launch`.
            unsafe { self.launcher.run("attention_core", &entry, launch, common.clone())? };
        }
        if shape.single {
            let threads = if head_dim.is_multiple_of(32) { 128 } else { 64 };
            let blocks =
                grid(shape.blocks as u32, spec.kv_heads as u32, shape.spans as u32, threads);
            let launch = Launch { shared_bytes: shared_bytes(head_dim, 1) as u32, ..blocks };
            let mut arguments = common;
            arguments.push(Argument::U64(self.workspace.partial));
            arguments.push(Argument::U32(shape.blocks as u32));
            arguments.push(Argument::U64(self.workspace.arrived));
            let entry = format!("attention_split_invariant_d{head_dim}");
            // SAFETY: as `Executor::launch`; the workspace has room for `shape.blocks` blocks.
            unsafe { self.launcher.run("attention_core", &entry, launch, arguments)? };
        }
        Ok(())
    }
}
