//! One matrix instruction, or a chain of them, on given data.

use super::data::Adversary;
use crate::backend::cuda::{Argument, CudaError, Device, KernelArch, Launch};
use crate::units::SplitMix64;

/// A matrix instruction as `kernels/tensor_core_probe.cu` runs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Instruction {
    MmaK16,
    MmaK8,
    Wgmma(usize),
    WgmmaRegisters,
}

impl Instruction {
    /// Those of an architecture with 16 k.
    pub(super) fn all(arch: KernelArch) -> Vec<Instruction> {
        let mut all = vec![Instruction::MmaK16];
        if arch.has_wgmma() {
            all.extend([8, 16, 32, 64, 128, 256].map(Instruction::Wgmma));
            all.push(Instruction::WgmmaRegisters);
        }
        all
    }

    pub(super) fn name(self) -> String {
        match self {
            Instruction::MmaK16 => "mma_m16n8k16".into(),
            Instruction::MmaK8 => "mma_m16n8k8".into(),
            Instruction::Wgmma(n) => format!("wgmma_m64n{n}k16"),
            Instruction::WgmmaRegisters => "wgmma_m64n64k16_registers".into(),
        }
    }

    fn entry(self) -> String {
        match self {
            Instruction::MmaK16 => "mma_probe_k16_bf16".into(),
            Instruction::MmaK8 => "mma_probe_k8_bf16".into(),
            Instruction::Wgmma(n) => format!("wgmma_probe_n{n}_bf16"),
            Instruction::WgmmaRegisters => "wgmma_probe_registers_n64_bf16".into(),
        }
    }

    pub(super) fn m(self) -> usize {
        match self {
            Instruction::MmaK16 | Instruction::MmaK8 => 16,
            _ => 64,
        }
    }

    pub(super) fn n(self) -> usize {
        match self {
            Instruction::MmaK16 | Instruction::MmaK8 => 8,
            Instruction::Wgmma(n) => n,
            Instruction::WgmmaRegisters => 64,
        }
    }

    /// D = C + A·Bᵀ of every case as FP32 bits, \[cases\]\[M\]\[N\].
    pub(super) fn run(self, device: &Device, cases: &Cases) -> Result<Vec<u32>, CudaError> {
        self.launch(device, cases, false)
    }

    /// As [`Instruction::run`], the start values ignored by the instruction itself.
    pub(super) fn run_from_nothing(
        self,
        device: &Device,
        cases: &Cases,
    ) -> Result<Vec<u32>, CudaError> {
        self.launch(device, cases, true)
    }

    fn launch(self, device: &Device, cases: &Cases, zero: bool) -> Result<Vec<u32>, CudaError> {
        assert_eq!((cases.m, cases.n), (self.m(), self.n()), "cases are made for the tile");
        let function = device.kernel("tensor_core_probe", &self.entry())?;
        let (a, b) = (device.upload(&cases.a)?, device.upload(&cases.b)?);
        let c = device.upload(&cases.c)?;
        // Poison, so that an element that is not written is seen.
        let d = device.upload(&vec![0x7fc0_dead_u32; cases.c.len()])?;
        let mut arguments: Vec<Argument> =
            [device.address(&a), device.address(&b), device.address(&c), device.address(&d)]
                .map(Argument::U64)
                .to_vec();
        arguments.push(Argument::U32(cases.k as u32));
        let threads = match self {
            Instruction::MmaK16 | Instruction::MmaK8 => 32,
            _ => {
                arguments.push(Argument::U32(u32::from(zero)));
                128
            }
        };
        // SAFETY: the arguments are those of the kernel; all memory lives until the download.
        unsafe { Launch::plain(cases.count as u32, threads).run(device, &function, arguments)? };
        device.download(&d)
    }
}

/// Independent cases for a tile: a \[count\]\[m\]\[k\], b \[count\]\[n\]\[k\], c \[count\]\[m\]\[n\] (FP32 bits).
#[derive(Clone, Debug)]
pub(super) struct Cases {
    pub(super) count: usize,
    pub(super) m: usize,
    pub(super) n: usize,
    pub(super) k: usize,
    pub(super) a: Vec<u16>,
    pub(super) b: Vec<u16>,
    pub(super) c: Vec<u32>,
}

impl Cases {
    /// Random cases of a kind, about `elements` results in all.
    pub(super) fn random(
        tile: Instruction,
        k: usize,
        elements: usize,
        kind: Adversary,
        random: &mut SplitMix64,
    ) -> Cases {
        let (m, n) = (tile.m(), tile.n());
        let count = elements.div_ceil(m * n).max(2);
        let a = (0..count * m).flat_map(|_| kind.row(random, k, true)).collect();
        let b = (0..count * n).flat_map(|_| kind.row(random, k, false)).collect();
        let c = (0..count * m * n).map(|_| kind.start(random)).collect();
        Cases { count, m, n, k, a, b, c }
    }

    pub(super) fn a_row(&self, case: usize, row: usize) -> &[u16] {
        &self.a[(case * self.m + row) * self.k..][..self.k]
    }

    pub(super) fn b_row(&self, case: usize, column: usize) -> &[u16] {
        &self.b[(case * self.n + column) * self.k..][..self.k]
    }

    pub(super) fn set_a_row(&mut self, case: usize, row: usize, data: &[u16]) {
        self.a[(case * self.m + row) * self.k..][..data.len()].copy_from_slice(data);
    }

    pub(super) fn set_b_row(&mut self, case: usize, column: usize, data: &[u16]) {
        self.b[(case * self.n + column) * self.k..][..data.len()].copy_from_slice(data);
    }

    /// Index of an element of c or d.
    pub(super) fn at(&self, case: usize, row: usize, column: usize) -> usize {
        (case * self.m + row) * self.n + column
    }

    /// The k from `start`, `len` of them, with other start values.
    pub(super) fn part(&self, start: usize, len: usize, c: Vec<u32>) -> Cases {
        let cut = |data: &[u16]| -> Vec<u16> {
            data.chunks_exact(self.k).flat_map(|row| row[start..start + len].to_vec()).collect()
        };
        Cases { k: len, a: cut(&self.a), b: cut(&self.b), c, ..*self }
    }

    /// Every row's k in another order.
    pub(super) fn permuted(&self, order: &[usize]) -> Cases {
        let permute = |data: &[u16]| -> Vec<u16> {
            data.chunks_exact(self.k).flat_map(|row| order.iter().map(|i| row[*i])).collect()
        };
        Cases { a: permute(&self.a), b: permute(&self.b), ..self.clone() }
    }
}

/// Positions at which two results differ; a NaN equals a NaN of the same bits only.
pub(super) fn differences(x: &[u32], y: &[u32]) -> usize {
    x.iter().zip(y).filter(|(a, b)| a != b).count() + x.len().abs_diff(y.len())
}
