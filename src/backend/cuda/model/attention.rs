//! Region `attention_core` on the device, and what comes before it: which kernel takes which spans.

use super::activations::View;
use super::exec::{Executor, Shape, pointer};
use super::launcher::{Launcher, grid};
use crate::backend::cuda::CudaError;
use crate::backend::cuda::launch::{Argument, Launch};
use crate::backend::{CacheSpec, Op, OpKind, Region};
use crate::descriptor::{NormStyle, RopeConvention};

/// Head sizes that the matrix kernels are instanced for.
const TILED_HEAD_DIMS: [usize; 5] = [16, 48, 64, 128, 256];

/// Stages of the ring of keys and values, as instanced in `kernels/attention_core.cu`.
fn stages(head_dim: usize) -> usize {
    if head_dim == 256 { 3 } else { 4 }
}

/// Stages of the kernel for several rows: two of its blocks share a multiprocessor.
fn rows_stages(head_dim: usize) -> usize {
    if head_dim >= 128 { 3 } else { 4 }
}

/// How `fast` attends one row a sequence: warps and stages of the kernel, as instanced in
/// `kernels/attention_core.cu`, and how keys are shared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Walk {
    warps: usize,
    stages: usize,
    /// Blocks that share the keys of a kv head, at most.
    splits: usize,
    /// Pieces of 16 keys that a block takes at least.
    least: usize,
}

impl Walk {
    /// One block a multiprocessor. Several sequences may have pasts of different lengths: the longest of
    /// them gets a block for every 4,096 keys even where there are more blocks than multiprocessors.
    ///
    /// It depends on the step's bucket, not on what is in it, so that a captured step has the same bits.
    fn new(
        multiprocessors: usize,
        shape: &Shape,
        kv_heads: usize,
        head_dim: usize,
    ) -> Option<Walk> {
        let (warps, stages) = match head_dim {
            64 => (8, 4),
            128 => (8, 2),
            256 => (4, 2),
            _ => return None,
        };
        let spans = shape.spans.next_power_of_two();
        let splits = (multiprocessors / (kv_heads * spans)).clamp(1, MOST_SPLITS);
        let long = shape.blocks.next_power_of_two().div_ceil(16).min(MOST_SPLITS);
        if spans > 1 && long > splits {
            return Some(Walk { warps, stages, splits: long, least: 256 });
        }
        Some(Walk { warps, stages, splits, least: warps })
    }

    fn shared_bytes(&self, head_dim: usize) -> usize {
        self.warps * self.stages * 64 * head_dim
    }
}

/// Most blocks that share the keys of a kv head: their scales meet in shared memory.
const MOST_SPLITS: usize = 256;
/// Query heads of a kv head that the walking kernel takes.
const WALK_GROUP: usize = 8;

/// How `fast` attends one row a sequence, where it has a way of its own.
fn walk(launcher: &Launcher, shape: &Shape, spec: &CacheSpec, heads: usize) -> Option<Walk> {
    let facts = launcher.device.facts();
    let own = launcher.fast && launcher.round && heads / spec.kv_heads <= WALK_GROUP;
    Walk::new(facts.multiprocessors, shape, spec.kv_heads, spec.head_dim)
        .filter(|walk| own && walk.shared_bytes(spec.head_dim) <= facts.block_shared_bytes)
}

/// Partial results of a row and head that the kernel for one row a sequence leaves.
pub(super) fn partials(
    launcher: &Launcher,
    shape: &Shape,
    spec: &CacheSpec,
    heads: usize,
) -> usize {
    walk(launcher, shape, spec, heads).map_or(shape.blocks, |walk| walk.splits)
}

/// Stages of the kernel that asks for a whole block at once, where a head size has one.
fn deep_stages(head_dim: usize) -> Option<usize> {
    match head_dim {
        64 | 128 => Some(9),
        256 => Some(6),
        _ => None,
    }
}

/// Shared memory of a block of `tiles` × 16 items.
fn shared_bytes(head_dim: usize, tiles: usize, stages: usize) -> usize {
    let items = tiles * 16;
    items * head_dim * 2 + stages * 64 * head_dim * 2 + items * 256 * 2 + 2 * items * 16
}

/// Items of a block of the kernel on warpgroups, and the fewest that a span must have to be worth one.
const WIDE_ITEMS: usize = 128;
const LEAST_WIDE_ITEMS: usize = 64;

/// Shared memory of the kernel on warpgroups: queries, two stages of keys and values, alignment; `None`
/// where a head size has none.
fn wide_shared_bytes(head_dim: usize) -> Option<usize> {
    let keys = match head_dim {
        64 | 128 => 128,
        256 => 64,
        _ => return None,
    };
    Some((WIDE_ITEMS + 4 * keys) * head_dim * 2 + 1024)
}

/// Where the gate of attention's output lies: per head `stride` elements, from `first` on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Gate {
    pub(super) rows: View,
    pub(super) first: usize,
    pub(super) stride: usize,
}

/// Whether the matrix kernels take a head size on a device with this much shared memory a block.
///
/// It depends on nothing else: every execution of a layer takes the same road.
pub(super) fn is_tiled(round: bool, head_dim: usize, block_shared_bytes: usize) -> bool {
    round
        && TILED_HEAD_DIMS.contains(&head_dim)
        && shared_bytes(head_dim, 4, rows_stages(head_dim)) <= block_shared_bytes
}

/// What attention reads and writes besides the cache.
#[derive(Clone, Copy, Debug)]
pub(super) struct AttentionRows {
    pub(super) q: View,
    pub(super) out: View,
    pub(super) gate: Option<Gate>,
    /// ln Σ exp(score), where it is wanted.
    pub(super) log_sums: Option<View>,
}

impl Executor<'_> {
    /// Norms of heads, ropes, cache write, and the way of the queries out of a product that holds
    /// their gate, too, as one launch.
    pub(super) fn attention_inputs(
        &self,
        ops: &[Op],
        shape: &Shape,
        views: &[View],
    ) -> Result<(), CudaError> {
        self.enter(Region::KvWrite);
        let mut split = None;
        let mut norms = Vec::new();
        let mut rotated = Vec::new();
        let mut written = None;
        for op in ops {
            match &op.kind {
                OpKind::QGateSplit { x, head_dim, .. } => split = Some((views[x.0], 2 * head_dim)),
                OpKind::PerHeadNorm { norm, .. } => norms.push(*norm),
                OpKind::Rope { x, heads, head_dim, .. } => {
                    rotated.push((views[x.0], *heads, *head_dim));
                }
                OpKind::KvWrite { v, slot, .. } => written = Some((views[v.0], *slot)),
                _ => unreachable!("nodes join what stands between projections and attention"),
            }
        }
        let (Some((value, slot)), [(query, heads, head_dim), (key, kv_heads, _)]) =
            (written, &rotated[..])
        else {
            unreachable!("nodes join two ropes and a cache write")
        };
        let rope = self.plan.rope.as_ref().expect("a plan with rope operations has a rope");
        let (from, stride) = split.unwrap_or((*query, *head_dim));
        let weight = |i: usize| {
            let address = norms.get(i).map_or(0, |n| self.weights.vector(n.weight).address);
            Argument::U64(address)
        };
        let number = |n: usize| Argument::U32(n as u32);
        let mut arguments = vec![Argument::Block(shape.step)];
        arguments.extend(pointer(from));
        arguments.push(number(stride));
        arguments.extend([*query, *key, value].into_iter().flat_map(pointer));
        arguments.extend([
            number(*heads),
            number(*kv_heads),
            number(*head_dim),
            weight(0),
            weight(1),
            Argument::F32(norms.first().map_or(0.0, |n| n.epsilon)),
            number(usize::from(norms.first().is_some_and(|n| n.style == NormStyle::OnePlus))),
            Argument::U64(self.workspace.rope_table),
            number(self.workspace.rope_half),
            number(usize::from(rope.convention == RopeConvention::Interleaved)),
            Argument::U64(self.states.slots[slot]),
        ]);
        let blocks = grid((heads + 2 * kv_heads).div_ceil(4) as u32, shape.rows as u32, 1, 128);
        let launch = Launch { shared_bytes: (4 * head_dim * 4) as u32, ..blocks };
        self.launch("rope", "attention_inputs", launch, arguments)
    }

    /// Attends every row to its own past.
    pub(super) fn attention(
        &self,
        io: &AttentionRows,
        slot: usize,
        heads: usize,
        shape: &Shape,
    ) -> Result<(), CudaError> {
        let AttentionRows { q, out, gate, log_sums } = *io;
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
        let mut common = vec![Argument::Block(shape.step), q0, q1, o0, o1, Argument::Words(cache)];
        let element = if self.launcher.round { 2 } else { 4 };
        let gate_rows = gate.map_or(0, |g| g.rows.address + (g.first * element) as u64);
        common.push(Argument::U64(gate_rows));
        common.push(Argument::U32(gate.map_or(0, |g| g.rows.pitch)));
        common.push(Argument::U32(gate.map_or(0, |g| g.stride as u32)));
        common.push(Argument::U64(log_sums.map_or(0, |v| v.address)));
        let facts = self.launcher.device.facts();
        let limit = facts.block_shared_bytes;
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
        let wide = wide_shared_bytes(head_dim).filter(|bytes| {
            self.launcher.fast
                && self.launcher.device.arch().has_wgmma()
                && shape.span_rows * group >= LEAST_WIDE_ITEMS
                && *bytes <= limit
        });
        if let Some(bytes) = wide.filter(|_| shape.several) {
            let tiles = (shape.span_rows * group).div_ceil(WIDE_ITEMS) as u32;
            let blocks = grid(spec.kv_heads as u32, tiles, shape.spans as u32, 384);
            let launch = Launch { shared_bytes: bytes as u32, ..blocks };
            let entry = format!("attention_rows_fast_d{head_dim}");
            // SAFETY: as `Executor::launch`.
            unsafe { self.launcher.run("attention_core", &entry, launch, common.clone())? };
        } else if shape.several {
            let items = (shape.span_rows * group).div_ceil(64) as u32;
            let blocks = grid(items, spec.kv_heads as u32, shape.spans as u32, 256);
            let shared_bytes = shared_bytes(head_dim, 4, rows_stages(head_dim)) as u32;
            let launch = Launch { shared_bytes, ..blocks };
            let entry = format!("attention_rows_invariant_d{head_dim}");
            // SAFETY: as `Executor::launch`.
            unsafe { self.launcher.run("attention_core", &entry, launch, common.clone())? };
        }
        if shape.single {
            let count = partials(self.launcher, shape, &spec, heads) as u32;
            let walk = walk(self.launcher, shape, &spec, heads);
            let (kernel, threads, shared_bytes) = match walk {
                Some(walk) => {
                    ("attention_walk_fast", 32 * walk.warps as u32, walk.shared_bytes(head_dim))
                }
                None => {
                    let threads = if head_dim.is_multiple_of(32) { 128 } else { 64 };
                    // Where every block has a multiprocessor of its own, waiting is all that costs.
                    let few = shape.blocks * spec.kv_heads * shape.spans <= facts.multiprocessors;
                    let deep = deep_stages(head_dim)
                        .filter(|deep| few && shared_bytes(head_dim, 1, *deep) <= limit);
                    let (kernel, stages) = match deep {
                        Some(deep) => ("attention_split_deep_invariant", deep),
                        None => ("attention_split_invariant", stages(head_dim)),
                    };
                    (kernel, threads, shared_bytes(head_dim, 1, stages))
                }
            };
            let blocks = grid(count, spec.kv_heads as u32, shape.spans as u32, threads);
            let launch = Launch { shared_bytes: shared_bytes as u32, ..blocks };
            let mut arguments = common;
            arguments.push(Argument::U64(self.workspace.partial));
            arguments.push(Argument::U32(count));
            arguments.extend(walk.map(|walk| Argument::U32(walk.least as u32)));
            arguments.push(Argument::U64(self.workspace.arrived));
            let entry = format!("{kernel}_d{head_dim}");
            // SAFETY: as `Executor::launch`; the workspace has room for `count` partial results.
            unsafe { self.launcher.run("attention_core", &entry, launch, arguments)? };
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::graph::Bucket;
    use super::*;

    fn walk(
        spans: usize,
        blocks: usize,
        kv_heads: usize,
        head_dim: usize,
    ) -> Option<(usize, usize)> {
        let shape = Shape::decode(Bucket { rows: spans, blocks });
        Walk::new(132, &shape, kv_heads, head_dim).map(|w| (w.splits, w.least))
    }

    #[test]
    fn keys_are_shared_by_as_many_blocks_as_there_are_multiprocessors() {
        assert_eq!(walk(1, 128, 8, 128), Some((16, 8)));
        assert_eq!(walk(1, 512, 4, 256), Some((33, 4)));
        assert_eq!(walk(2, 128, 8, 128), Some((8, 8)));
        assert_eq!(walk(64, 2, 8, 128), Some((1, 8)));
        assert_eq!(walk(64, 512, 8, 128), Some((32, 256)), "a long past among many sequences");
        assert_eq!(walk(1, 1, 8, 48), None);
    }

    #[test]
    fn a_step_and_its_bucket_share_keys_alike() {
        let exact = Shape { blocks: 5, ..Shape::decode(Bucket { rows: 3, blocks: 8 }) };
        let bucket = Shape::decode(Bucket { rows: 4, blocks: 8 });
        assert_eq!(Walk::new(132, &exact, 8, 128), Walk::new(132, &bucket, 8, 128));
    }
}
