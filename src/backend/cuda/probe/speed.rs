//! Times of the products beside the vendor's library and the memory's ceilings.

use super::rows::fill;
use super::timing::{Captured, Timing};
use crate::backend::cuda::{
    Argument, Blas, Chaining, CudaError, Device, GemmKernel, Launch, Product,
};
use cudarc::driver::CudaSlice;
use serde::Serialize;

/// One row of the table.
#[derive(Clone, Debug, Serialize)]
pub struct SpeedReport {
    /// `read`, `copy`, a kernel's name, or `cublaslt`.
    pub kernel: String,
    pub tokens: usize,
    pub m: usize,
    pub k: usize,
    pub timing: Timing,
    /// Fewest bytes that the operation moves through device memory, over the time.
    pub gigabytes_per_second: f64,
    /// 2·m·n·k over the time; 0 for memory operations.
    pub teraflops: f64,
    /// Digest-like words of the algorithm, for the vendor's library.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub algorithm: Option<String>,
}

const REPLAYS: usize = 9;

/// Measures the memory's ceilings, then the products of an m×k weight at every number of tokens.
///
/// Weights are random, and so many copies of them take turns that no launch finds its own in the
/// second-level cache.
///
/// # Errors
/// The device could not be asked.
pub fn measure_speed(
    device: &Device,
    m: usize,
    k: usize,
    tokens: &[usize],
) -> Result<Vec<SpeedReport>, CudaError> {
    let bytes = m * k * 2;
    let copies = (4 * device.facts().l2_bytes as usize).div_ceil(bytes).max(4) + 2;
    let deviation = 1.0 / (k as f64).sqrt();
    let weights: Vec<CudaSlice<u16>> =
        (0..copies as u64).map(|i| fill(device, m * k, i, deviation)).collect::<Result<_, _>>()?;
    let most = tokens.iter().copied().max().unwrap_or(1);
    let input = fill(device, most * k, 99, 1.0)?;
    let output = device.zeros::<u16>(most * m)?;
    let blas = Blas::open(device)?;
    let mut reports = measure_memory(device)?;
    for &n in tokens {
        let product = |copy: usize| Product {
            weights: device.address(&weights[copy % copies]),
            input: device.address(&input),
            output: device.address(&output),
            m,
            n,
            k,
            output_stride: m,
            wide: false,
        };
        let moved = bytes + n * k * 2 + n * m * 2;
        let mut report = |kernel: String, timing: Timing, algorithm: Option<String>| {
            reports.push(SpeedReport {
                kernel,
                tokens: n,
                m,
                k,
                gigabytes_per_second: moved as f64 / timing.time_us / 1e3,
                teraflops: 2.0 * (m * n * k) as f64 / timing.time_us / 1e6,
                timing,
                algorithm,
            });
        };
        let launches = if n > 256 { copies } else { copies * 4 };
        let plan = blas.plan(m, n, k)?;
        // SAFETY: the memory has the product's sizes and outlives the replays.
        let run = |i| unsafe { plan.run(device, &product(i)) };
        run(0)?;
        let timing = Captured::new(device, || (0..launches).try_for_each(run))?;
        report("cublaslt".into(), timing.time(REPLAYS, launches)?, Some(plan.algorithm()));
        if n == 1 {
            let gemv = |i: usize| fma_gemv(device, &product(i));
            gemv(0)?;
            let timing = Captured::new(device, || (0..launches).try_for_each(gemv))?;
            report("gemv_fast_bf16".into(), timing.time(REPLAYS, launches)?, None);
        }
        for kernel in GemmKernel::all(device.arch()) {
            // Forms made for far fewer tokens only say that they were not made for more.
            let width = match kernel {
                GemmKernel::Rows { tokens } | GemmKernel::Tile { tokens, .. } => tokens as usize,
            };
            if n > 2 * width && width < 128 || width > 16 * n {
                continue;
            }
            // SAFETY: as above.
            let run = |i| unsafe { kernel.launch(device, &product(i), Chaining::default()) };
            run(0)?;
            let timing = Captured::new(device, || (0..launches).try_for_each(run))?;
            let chosen = kernel == GemmKernel::choose(device.arch(), n);
            let name = match kernel {
                GemmKernel::Tile { cluster, .. } => format!("{} cluster {cluster}", kernel.entry()),
                GemmKernel::Rows { .. } => kernel.entry(),
            };
            let name = if chosen { format!("{name} *") } else { name };
            report(name, timing.time(REPLAYS, launches)?, None);
        }
    }
    Ok(reports)
}

fn fma_gemv(device: &Device, p: &Product) -> Result<(), CudaError> {
    let function = device.kernel("gemm", "gemv_fast_bf16")?;
    let arguments = vec![
        Argument::U64(p.weights),
        Argument::U64(p.input),
        Argument::U64(p.output),
        Argument::U32(p.m as u32),
        Argument::U32(p.k as u32),
    ];
    // SAFETY: the arguments are those of the kernel; the caller's memory has the sizes.
    unsafe { Launch::plain((p.m as u32).div_ceil(32), 256).run(device, &function, arguments) }
}

/// Reads a large buffer of a device again and again: how fast its memory is right now.
#[derive(Debug)]
pub struct ReadRate {
    device: Device,
    source: CudaSlice<u16>,
    result: CudaSlice<u32>,
}

/// Elements that one reading takes: 1 GiB, twenty times the largest second-level cache.
const READ_ELEMENTS: usize = 1 << 29;

impl ReadRate {
    /// A probe of a device.
    ///
    /// # Errors
    /// The device could not be opened or has no memory for the buffer.
    pub fn open(ordinal: usize) -> Result<ReadRate, CudaError> {
        let device = Device::open(ordinal)?;
        let (source, result) = (fill(&device, READ_ELEMENTS, 5, 1.0)?, device.zeros::<u32>(1)?);
        Ok(ReadRate { device, source, result })
    }

    /// Bytes per second of the fastest of three passes: under a millisecond.
    ///
    /// # Errors
    /// The device refuses.
    pub fn bytes_per_second(&self) -> Result<f64, CudaError> {
        let read = self.device.kernel("memory_probe", "read_bf16")?;
        let launch = || {
            let arguments = vec![
                Argument::U64(self.device.address(&self.source)),
                Argument::U64((READ_ELEMENTS / 8) as u64),
                Argument::U64(self.device.address(&self.result)),
            ];
            let blocks = self.device.facts().multiprocessors as u32 * 8;
            // SAFETY: the arguments are those of the kernel; the memory has so many pieces.
            unsafe { Launch::plain(blocks, 256).run(&self.device, &read, arguments) }
        };
        let timing = Captured::new(&self.device, launch)?.time(3, 1)?;
        Ok((READ_ELEMENTS * 2) as f64 / timing.fastest_us * 1e6)
    }
}

/// Elements of the buffer that is read and copied: 4 GiB, so that a launch's start does not count.
const MEMORY_ELEMENTS: usize = 1 << 31;

/// Reading and copying a large buffer.
pub fn measure_memory(device: &Device) -> Result<Vec<SpeedReport>, CudaError> {
    let source = fill(device, MEMORY_ELEMENTS, 5, 1.0)?;
    let target = device.zeros::<u16>(MEMORY_ELEMENTS)?;
    let result = device.zeros::<u32>(1)?;
    let pieces = (MEMORY_ELEMENTS / 8) as u64;
    let (read, copy) =
        (device.kernel("memory_probe", "read_bf16")?, device.kernel("memory_probe", "copy_bf16")?);
    let blocks = device.facts().multiprocessors as u32 * 8;
    let run_read = || {
        let arguments = vec![
            Argument::U64(device.address(&source)),
            Argument::U64(pieces),
            Argument::U64(device.address(&result)),
        ];
        // SAFETY: the arguments are those of the kernel; the memory has `pieces` pieces.
        unsafe { Launch::plain(blocks, 256).run(device, &read, arguments) }
    };
    let run_copy = || {
        let arguments = vec![
            Argument::U64(device.address(&source)),
            Argument::U64(device.address(&target)),
            Argument::U64(pieces),
        ];
        // SAFETY: as above.
        unsafe { Launch::plain(blocks * 4, 256).run(device, &copy, arguments) }
    };
    let mut reports = Vec::new();
    let mut report = |name: &str, bytes: usize, timing: Timing| {
        reports.push(SpeedReport {
            kernel: name.into(),
            tokens: 0,
            m: 0,
            k: 0,
            gigabytes_per_second: bytes as f64 / timing.time_us / 1e3,
            teraflops: 0.0,
            timing,
            algorithm: None,
        });
    };
    report("read", MEMORY_ELEMENTS * 2, Captured::new(device, run_read)?.time(REPLAYS, 1)?);
    report("copy", MEMORY_ELEMENTS * 4, Captured::new(device, run_copy)?.time(REPLAYS, 1)?);
    Ok(reports)
}
