//! Weights on the device: one arena, products of one input side by side.

use super::memory::Memory;
use super::nodes::Groups;
use crate::backend::cuda::launch::{Argument, Launch};
use crate::backend::cuda::{CudaError, Device};
use crate::backend::{Plan, WeightRef};
use crate::descriptor::RoleName;
use crate::tensor::{Storage, Weight};
use crate::weights::SyntheticWeight;
use std::collections::{BTreeSet, HashMap};

/// A logical weight that a model is loaded from.
#[derive(Clone, Debug)]
pub enum BoundWeight {
    /// On the host.
    Host(Weight),
    /// Made on the device from a seed, the same bits as on the host.
    Synthetic(SyntheticWeight),
}

impl BoundWeight {
    /// Rows and columns.
    pub fn shape(&self) -> [usize; 2] {
        match self {
            BoundWeight::Host(w) => [w.rows, w.cols],
            BoundWeight::Synthetic(s) => [s.rows, s.cols],
        }
    }

    /// Whether elements are BF16 (else FP32).
    pub fn is_bf16(&self) -> bool {
        match self {
            BoundWeight::Host(w) => matches!(w.storage, Storage::Bf16(_)),
            BoundWeight::Synthetic(_) => true,
        }
    }

    /// The same for weights that share their elements, different for others.
    fn identity(&self) -> u64 {
        match self {
            BoundWeight::Host(w) => w.as_bytes().as_ptr() as u64,
            BoundWeight::Synthetic(s) => s.key(),
        }
    }

    /// Every element on the host.
    fn to_f32(&self) -> Vec<f32> {
        match self {
            BoundWeight::Host(w) => w.to_f32(),
            BoundWeight::Synthetic(s) => s.generate().to_f32(),
        }
    }

    /// Whether elements are codes that no kernel here reads.
    pub(super) fn is_packed(&self) -> bool {
        matches!(self, BoundWeight::Host(w) if matches!(w.storage, Storage::Int4(_)))
    }

    fn size_bytes(&self) -> usize {
        let [rows, cols] = self.shape();
        rows * cols * if self.is_bf16() { 2 } else { 4 }
    }

    /// Whether the matrix instructions take it as it is stored.
    pub(super) fn is_tiled(&self) -> bool {
        self.is_bf16() && self.shape()[1].is_multiple_of(8)
    }
}

/// A weight's place.
#[derive(Clone, Copy, Debug)]
pub(super) struct DeviceWeight {
    pub(super) address: u64,
    pub(super) rows: usize,
    pub(super) cols: usize,
    pub(super) bf16: bool,
}

/// Every weight of a plan on the device.
#[derive(Debug)]
pub(super) struct DeviceWeights {
    matrices: HashMap<WeightRef, DeviceWeight>,
    /// Vectors widened to FP32; convolution weights as `[tap][channel]`.
    vectors: HashMap<WeightRef, DeviceWeight>,
    arena: Memory,
}

fn is_vector(reference: WeightRef, weight: &BoundWeight) -> bool {
    weight.shape()[0] == 1 || reference.role == RoleName::GdnConv
}

impl DeviceWeights {
    /// Uploads or makes every weight. Refuses before any work what the device has no room for.
    pub(super) fn load(
        device: &Device,
        plan: &Plan,
        groups: &Groups,
        weights: &HashMap<WeightRef, BoundWeight>,
    ) -> Result<DeviceWeights, CudaError> {
        let layout = arrange(plan, groups, weights);
        let bytes = layout.end;
        let free = device.free_bytes()?;
        if bytes as u64 > free {
            return Err(CudaError::OutOfMemory {
                what: "weights",
                needed_bytes: bytes as u64,
                free_bytes: free,
            });
        }
        let arena = Memory::new(device, bytes)?;
        let (mut matrices, mut vectors) = (HashMap::new(), HashMap::new());
        for (reference, offset) in &layout.matrices {
            let weight = &weights[reference];
            let [rows, cols] = weight.shape();
            match weight {
                BoundWeight::Host(w) => arena.write(device, *offset, w.as_bytes())?,
                BoundWeight::Synthetic(s) => generate(device, arena.address() + *offset as u64, s)?,
            }
            let address = arena.address() + *offset as u64;
            let placed = DeviceWeight { address, rows, cols, bf16: weight.is_bf16() };
            matrices.insert(*reference, placed);
        }
        for (reference, offset) in &layout.vectors {
            let weight = &weights[reference];
            let [rows, cols] = weight.shape();
            let mut values = weight.to_f32();
            if reference.role == RoleName::GdnConv {
                values = (0..cols)
                    .flat_map(|c| (0..rows).map(move |r| (r, c)))
                    .map(|(r, c)| values[r * cols + c])
                    .collect();
            }
            arena.write(device, *offset, &values)?;
            let address = arena.address() + *offset as u64;
            let placed = DeviceWeight { address, rows, cols, bf16: weight.is_bf16() };
            vectors.insert(*reference, placed);
        }
        device.synchronize()?;
        Ok(DeviceWeights { matrices, vectors, arena })
    }

    /// A matrix as the checkpoint stores it.
    pub(super) fn matrix(&self, reference: WeightRef) -> DeviceWeight {
        self.matrices[&reference]
    }

    /// A vector in FP32; `bf16` says how the checkpoint stores it.
    pub(super) fn vector(&self, reference: WeightRef) -> DeviceWeight {
        self.vectors[&reference]
    }

    /// Bytes of the arena.
    pub(super) fn len_bytes(&self) -> usize {
        self.arena.len_bytes()
    }
}

#[derive(Default)]
struct Arrangement {
    matrices: Vec<(WeightRef, usize)>,
    vectors: Vec<(WeightRef, usize)>,
    end: usize,
}

/// Offsets in the arena. Members of a group follow each other without a gap.
fn arrange(plan: &Plan, groups: &Groups, weights: &HashMap<WeightRef, BoundWeight>) -> Arrangement {
    let mut layout = Arrangement::default();
    let mut placed = BTreeSet::new();
    // Tied roles name the same elements: they are stored once.
    let mut shared: HashMap<u64, usize> = HashMap::new();
    for group in groups.weights(plan) {
        layout.end = layout.end.next_multiple_of(256);
        for reference in group {
            layout.matrices.push((reference, layout.end));
            layout.end += weights[&reference].size_bytes();
            placed.insert((reference.role, reference.layer));
        }
    }
    let mut rest: Vec<_> = weights.iter().collect();
    rest.sort_by_key(|(r, _)| (r.layer, r.role));
    for (reference, weight) in rest {
        layout.end = layout.end.next_multiple_of(256);
        if is_vector(*reference, weight) {
            layout.vectors.push((*reference, layout.end));
            let [rows, cols] = weight.shape();
            layout.end = (layout.end + rows * cols * 4).next_multiple_of(256);
        }
        // A product with one output has a weight of one row: it is a matrix as well.
        if !placed.contains(&(reference.role, reference.layer)) {
            let offset = *shared.entry(weight.identity()).or_insert(layout.end);
            layout.matrices.push((*reference, offset));
            if offset == layout.end {
                layout.end += weight.size_bytes();
            }
        }
    }
    layout
}

/// Makes a weight where it is used.
fn generate(device: &Device, address: u64, weight: &SyntheticWeight) -> Result<(), CudaError> {
    let law = weight.law();
    let function = device.kernel("synthetic", "synthetic_bf16")?;
    let blocks = device.facts().multiprocessors as u32 * 16;
    let arguments = vec![
        Argument::U64(address),
        Argument::U64((weight.rows * weight.cols) as u64),
        Argument::U64(weight.key()),
        Argument::U32(u32::from(law.flat)),
        Argument::U32(law.offset as u32),
        Argument::U32(law.factor as u32),
        Argument::F32(law.scale),
    ];
    // SAFETY: the arguments are those of the kernel; the range is the arena's.
    unsafe { Launch::plain(blocks, 256).run(device, &function, arguments) }
}
