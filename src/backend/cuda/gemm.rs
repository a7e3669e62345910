//! The `gemm` region on the device: which kernel takes which shape.

use super::launch::{Argument, Launch, tensor_map};
use super::{CudaError, Device, KernelArch};
use crate::tensor::segments;
use cudarc::driver::CudaFunction;

/// Y\[n\]\[m\] = Σ_k X\[n\]\[k\]·W\[m\]\[k\]: addresses of BF16 device memory and sizes.
#[derive(Clone, Copy, Debug)]
pub struct Product {
    pub weights: u64,
    pub input: u64,
    pub output: u64,
    /// Weight rows.
    pub m: usize,
    /// Tokens.
    pub n: usize,
    pub k: usize,
    /// Elements between output rows.
    pub output_stride: usize,
    /// FP32 out, without the final rounding (region `gemm_f32`).
    pub wide: bool,
}

/// How a product's launch relates to its neighbours in a chain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Chaining {
    /// May start before its predecessor has ended.
    pub dependent: bool,
    /// Asks for its own first weights before waiting for the predecessor.
    pub early_weights: bool,
    /// Address and bytes of the successor's weights to bring into the second-level cache.
    pub next: (u64, u32),
}

/// An implementation of the region with the invariant order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum GemmKernel {
    /// `mma.sync`, a ring of weights a warp, up to so many tokens a pass (8, 16, 32, 64).
    Rows { tokens: u32 },
    /// `wgmma`, tiles of so many tokens (8, 16, 32, 64, 128); `cluster` blocks share the segments
    /// of a tile.
    Tile { tokens: u32, cluster: u32 },
}

impl GemmKernel {
    /// The kernel for `n` tokens on an architecture.
    pub fn choose(arch: KernelArch, n: usize) -> GemmKernel {
        match (n, arch.has_wgmma()) {
            (0..=8, _) => GemmKernel::Rows { tokens: 8 },
            (9..=16, false) => GemmKernel::Rows { tokens: 16 },
            (17..=32, false) => GemmKernel::Rows { tokens: 32 },
            (_, false) => GemmKernel::Rows { tokens: 64 },
            (9..=32, true) => GemmKernel::Tile { tokens: 32, cluster: 1 },
            (33..=64, true) => GemmKernel::Tile { tokens: 64, cluster: 1 },
            (_, true) => GemmKernel::Tile { tokens: 128, cluster: 1 },
        }
    }

    /// The `mma.sync` kernel for `n` tokens: it takes any number of weight rows and FP32 outputs.
    pub(super) fn rows_for(n: usize) -> GemmKernel {
        let tokens = match n {
            0..=8 => 8,
            9..=16 => 16,
            17..=32 => 32,
            _ => 64,
        };
        GemmKernel::Rows { tokens }
    }

    /// Every kernel that an architecture has, with the clusters worth asking for.
    pub fn all(arch: KernelArch) -> Vec<GemmKernel> {
        let mut all: Vec<GemmKernel> =
            [8, 16, 32, 64].map(|tokens| GemmKernel::Rows { tokens }).to_vec();
        if arch.has_wgmma() {
            let tile = |tokens, cluster| GemmKernel::Tile { tokens, cluster };
            all.extend([tile(8, 1), tile(16, 1), tile(16, 2), tile(32, 1), tile(32, 4)]);
            all.extend([tile(64, 1), tile(64, 2), tile(64, 4), tile(64, 8)]);
            all.extend([tile(128, 1), tile(128, 2)]);
        }
        all
    }

    /// The kernel's name for a product's output type.
    pub(super) fn entry_for(self, product: &Product) -> String {
        let name = self.entry();
        if product.wide { name.replace("_bf16", "_f32") } else { name }
    }

    /// The kernel's name, e.g. `gemm_tile_invariant_n64_bf16`.
    pub fn entry(self) -> String {
        match self {
            GemmKernel::Rows { tokens } => format!("gemm_rows_invariant_n{tokens}_bf16"),
            GemmKernel::Tile { tokens, .. } => format!("gemm_tile_invariant_n{tokens}_bf16"),
        }
    }

    /// Puts the product into the device's stream.
    ///
    /// # Safety
    /// The addresses of `product` are device memory of its sizes that lives until the work is done.
    ///
    /// # Errors
    /// The kernel refuses the shape, or the driver the launch.
    pub unsafe fn launch(
        self,
        device: &Device,
        product: &Product,
        chaining: Chaining,
    ) -> Result<(), CudaError> {
        let function = device.kernel("gemm", &self.entry_for(product))?;
        // SAFETY: the caller's promise.
        unsafe { self.launch_with(device, &function, product, chaining) }
    }

    /// [`GemmKernel::launch`] with the function looked up before.
    ///
    /// # Safety
    /// As [`GemmKernel::launch`]; `function` is this kernel's for the product's output type.
    ///
    /// # Errors
    /// As [`GemmKernel::launch`].
    pub(super) unsafe fn launch_with(
        self,
        device: &Device,
        function: &CudaFunction,
        product: &Product,
        chaining: Chaining,
    ) -> Result<(), CudaError> {
        self.check(product)?;
        let (launch, arguments) = match self {
            GemmKernel::Rows { tokens } => rows(product, tokens, chaining),
            GemmKernel::Tile { tokens, cluster } => {
                tile(device, product, tokens, cluster, chaining)?
            }
        };
        // SAFETY: the arguments are those of the kernel, as declared in `kernels/gemm.cu`; the
        // caller answers for the memory.
        unsafe { launch.run(device, function, arguments) }
    }

    fn check(self, p: &Product) -> Result<(), CudaError> {
        let refused = |expected: &str, found: String| {
            Err(CudaError::Refused { kernel: "gemm", expected: expected.into(), found })
        };
        if p.m == 0 || p.n == 0 || p.k == 0 || !p.k.is_multiple_of(8) {
            return refused("at least one row and token, k a multiple of 8", format!("{p:?}"));
        }
        if p.output_stride < p.m {
            return refused("an output row of at least m elements", format!("{p:?}"));
        }
        if let GemmKernel::Tile { cluster, tokens } = self {
            if p.wide {
                return refused("BF16 out", format!("{p:?}"));
            }
            if !p.m.is_multiple_of(8) || !p.output_stride.is_multiple_of(8) {
                return refused("m and the output stride multiples of 8", format!("{p:?}"));
            }
            if !segments(p.k).is_multiple_of(cluster as usize) || cluster > tokens / 8 {
                return refused(
                    "a cluster that divides the segments and the groups of 8 tokens",
                    format!("{cluster} blocks, {} segments, {tokens} tokens", segments(p.k)),
                );
            }
        }
        Ok(())
    }
}

/// Tokens that the joined gate and up projection takes.
pub(super) const GATE_UP_TOKENS: usize = 8;

/// The joined gate and up projection: `product` of the gate's weights, the up weights at `up`.
pub(super) fn gate_up(product: &Product, up: u64, chaining: Chaining) -> (Launch, Vec<Argument>) {
    // A tile of 16 holds 8 rows of each weight.
    let (mut launch, mut arguments) = rows(product, GATE_UP_TOKENS as u32, chaining);
    launch.grid.0 = (product.m as u32).div_ceil(8 * (8 / segments(product.k) as u32));
    arguments.push(Argument::U64(up));
    (launch, arguments)
}

fn rows(p: &Product, tokens: u32, chaining: Chaining) -> (Launch, Vec<Argument>) {
    let segments = segments(p.k) as u32;
    let tiles_per_block = 8 / segments;
    let blocks = (p.m as u32).div_ceil(16 * tiles_per_block);
    let launch = Launch {
        grid: (blocks, (p.n as u32).div_ceil(tokens)),
        depth: 1,
        block: 256,
        // A ring of stages of 16 × 64 weights for each of 8 warps, as instanced in the source.
        shared_bytes: 8 * if tokens == 8 { 3 } else { 4 } * 2048,
        cluster: 1,
        dependent: chaining.dependent,
    };
    let arguments = vec![
        Argument::U64(p.weights),
        Argument::U64(p.input),
        Argument::U64(p.output),
        Argument::U32(p.m as u32),
        Argument::U32(p.n as u32),
        Argument::U32(p.k as u32),
        Argument::U32(p.output_stride as u32),
        Argument::U32(segments),
        Argument::U32(u32::from(!chaining.early_weights)),
        Argument::U64(chaining.next.0),
        Argument::U32(chaining.next.1),
    ];
    (launch, arguments)
}

fn tile(
    device: &Device,
    p: &Product,
    tokens: u32,
    cluster: u32,
    chaining: Chaining,
) -> Result<(Launch, Vec<Argument>), CudaError> {
    // As the instances at the end of `kernels/gemm.cu`: warpgroups, stages, blocks an SM.
    let (groups, stages, residents) = match tokens {
        8 | 16 => (1, 8, 2),
        32 => (1, 7, 2),
        64 => (1, 5, 2),
        _ => (2, 5, 1),
    };
    let rows = 64 * groups;
    let tiles = (p.m as u32).div_ceil(rows) * (p.n as u32).div_ceil(tokens);
    let resident = device.facts().multiprocessors as u32 * residents;
    let launch = Launch {
        grid: (if cluster > 1 { tiles * cluster } else { tiles.min(resident) }, 1),
        depth: 1,
        block: groups * 128 + if groups > 1 { 128 } else { 32 },
        // Ring of stages, partial tile of the tree, alignment of the first stage.
        shared_bytes: stages * (rows + tokens) * 128 + rows * tokens * 4 + 1024,
        cluster,
        dependent: chaining.dependent,
    };
    let arguments = vec![
        Argument::TensorMap(tensor_map(p.weights, p.m, p.k, rows)?),
        Argument::TensorMap(tensor_map(p.input, p.n, p.k, tokens)?),
        Argument::U64(p.output),
        Argument::U32(p.m as u32),
        Argument::U32(p.n as u32),
        Argument::U32(p.k as u32),
        Argument::U32(p.output_stride as u32),
        Argument::U32(segments(p.k) as u32),
    ];
    Ok((launch, arguments))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::cuda::{KERNEL_ARCHS, KernelSource, kernel_names};

    #[test]
    fn segments_follow_the_contract() {
        let cases = [(5120, 8), (6144, 8), (17408, 8), (576, 1), (1536, 8), (256, 4), (128, 2)];
        for (k, expected) in cases {
            assert_eq!(segments(k), expected, "k = {k}");
        }
    }

    #[test]
    fn every_choice_is_a_kernel_of_the_source() {
        let names = kernel_names(KernelSource::find("gemm").unwrap());
        for arch in KERNEL_ARCHS {
            let chosen = (1..=200).map(|n| GemmKernel::choose(arch, n));
            for kernel in GemmKernel::all(arch).into_iter().chain(chosen) {
                let entry = kernel.entry();
                let found = names.iter().find(|(name, _)| *name == entry);
                let (_, hopper) = found.unwrap_or_else(|| panic!("no kernel {entry}"));
                assert!(!hopper || arch.has_wgmma(), "{entry} on {arch}");
            }
        }
    }

    #[test]
    fn shapes_a_kernel_cannot_take_are_refused_by_name() {
        let good = Product {
            weights: 0,
            input: 0,
            output: 0,
            m: 64,
            n: 1,
            k: 128,
            output_stride: 64,
            wide: false,
        };
        let rows = GemmKernel::Rows { tokens: 8 };
        let tile = GemmKernel::Tile { tokens: 16, cluster: 2 };
        assert_eq!(rows.check(&good), Ok(()));
        assert_eq!(tile.check(&good), Ok(()));
        assert!(rows.check(&Product { k: 100, ..good }).is_err());
        assert!(rows.check(&Product { output_stride: 63, ..good }).is_err());
        assert!(tile.check(&Product { m: 60, ..good }).is_err());
        assert!(tile.check(&Product { k: 64, ..good }).is_err(), "one segment, two blocks");
        assert!(tile.check(&Product { wide: true, ..good }).is_err());
        assert_eq!(rows.entry_for(&Product { wide: true, ..good }), "gemm_rows_invariant_n8_f32");
    }
}
