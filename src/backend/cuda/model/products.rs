//! Regions `gemm` and `gemm_f32` on the device: which kernel takes which product.

use super::activations::View;
use super::exec::{Executor, Shape};
use super::launcher::grid;
use super::vendor::VendorProducts;
use super::weights::DeviceWeight;
use crate::backend::cuda::gemm::{Chaining, GATE_UP_TOKENS, GemmKernel, Product, gate_up};
use crate::backend::cuda::launch::Argument;
use crate::backend::cuda::{CudaError, KernelArch};
use crate::backend::{OpKind, Region};

impl Executor<'_> {
    /// Products of one input as one product of all their weight rows.
    pub(super) fn gemms(
        &self,
        members: &[usize],
        shape: &Shape,
        views: &[View],
    ) -> Result<(), CudaError> {
        self.enter(Region::Gemm);
        let parts: Vec<(DeviceWeight, View, View)> = members
            .iter()
            .filter_map(|i| match self.plan.ops[*i].kind {
                OpKind::Gemm { x, weight, out } => {
                    Some((self.weights.matrix(weight), views[x.0], views[out.0]))
                }
                _ => None,
            })
            .collect();
        let (first, x, out) = parts[0];
        let rows = parts.iter().map(|(w, _, _)| w.rows).sum();
        self.product(DeviceWeight { rows, ..first }, x, out, shape.rows)
    }

    /// Both projections and the activation of their products in one launch; `false` if no kernel takes
    /// the operands, the same bits by themselves.
    pub(super) fn gate_up(
        &self,
        members: &[usize],
        out: View,
        shape: &Shape,
        views: &[View],
    ) -> Result<bool, CudaError> {
        let parts: Vec<(DeviceWeight, View)> = members
            .iter()
            .filter_map(|i| match self.plan.ops[*i].kind {
                OpKind::Gemm { x, weight, .. } => Some((self.weights.matrix(weight), views[x.0])),
                _ => None,
            })
            .collect();
        let [(gate, x), (up, _)] = parts[..] else { return Ok(false) };
        let tiled = self.launcher.round && gate.bf16 && up.bf16 && gate.cols.is_multiple_of(8);
        let alike = (gate.rows, gate.cols) == (up.rows, up.cols) && x.pitch as usize == gate.cols;
        if !tiled || !alike || shape.rows > GATE_UP_TOKENS {
            return Ok(false);
        }
        self.enter(Region::GateUp);
        let product = Product {
            weights: gate.address,
            input: x.address,
            output: out.address,
            m: gate.rows,
            n: shape.rows,
            k: gate.cols,
            output_stride: out.pitch as usize,
            wide: false,
        };
        let dependent = self.launcher.device.arch().has_dependent_launch();
        let chaining = Chaining { dependent, early_weights: dependent, next: (0, 0) };
        let (launch, arguments) = gate_up(&product, up.address, chaining);
        // SAFETY: the arguments are those of the kernel; addresses are of buffers and weights of these
        // sizes.
        unsafe { self.launcher.run("gemm", "gate_up_rows_invariant_n8_bf16", launch, arguments)? };
        Ok(true)
    }

    /// Y = X·Wᵀ with the kernel for the operands' types and sizes.
    pub(super) fn product(
        &self,
        weight: DeviceWeight,
        x: View,
        out: View,
        tokens: usize,
    ) -> Result<(), CudaError> {
        if x.pitch as usize != weight.cols {
            return Err(CudaError::Refused {
                kernel: "gemm",
                expected: format!("input rows of {} elements without gaps", weight.cols),
                found: format!("a pitch of {}", x.pitch),
            });
        }
        let product = Product {
            weights: weight.address,
            input: x.address,
            output: out.address,
            m: weight.rows,
            n: tokens,
            k: weight.cols,
            output_stride: out.pitch as usize,
            wide: out.wide || !self.launcher.round,
        };
        let tiled = self.launcher.round && weight.bf16 && weight.cols.is_multiple_of(8);
        if !tiled {
            return self.serial_product(&product, weight.bf16);
        }
        if let Some(vendor) =
            self.launcher.vendor.as_ref().filter(|_| VendorProducts::takes(&product))
        {
            // SAFETY: addresses are of buffers and weights of these sizes.
            return unsafe { vendor.run(&self.launcher.device, &product) };
        }
        let kernel = choose(self.launcher.device.arch(), &product);
        let dependent = self.launcher.device.arch().has_dependent_launch();
        let chaining = Chaining { dependent, early_weights: dependent, next: (0, 0) };
        let function = self.launcher.function("gemm", &kernel.entry_for(&product))?;
        // SAFETY: addresses are of buffers and weights of these sizes.
        unsafe { kernel.launch_with(&self.launcher.device, &function, &product, chaining) }
    }

    fn serial_product(&self, p: &Product, weight_is_bf16: bool) -> Result<(), CudaError> {
        let name = |bf16: bool| if bf16 { "bf16" } else { "f32" };
        let round = self.launcher.round;
        let entry =
            format!("gemm_serial_{}_{}_{}", name(round), name(weight_is_bf16), name(!p.wide));
        let arguments = vec![
            Argument::U64(p.weights),
            Argument::U64(p.input),
            Argument::U64(p.output),
            Argument::U32(p.m as u32),
            Argument::U32(p.n as u32),
            Argument::U32(p.k as u32),
            Argument::U32(p.output_stride as u32),
            Argument::U32(crate::backend::cpu::segments(p.k) as u32),
        ];
        let blocks = grid((p.m as u32).div_ceil(64), (p.n as u32).div_ceil(32), 1, 256);
        // SAFETY: as in `launch`.
        unsafe { self.launcher.run("gemm", &entry, blocks, arguments) }
    }
}

/// The kernel for a product: the same sums in every one of them.
fn choose(arch: KernelArch, product: &Product) -> GemmKernel {
    let whole = product.m.is_multiple_of(8) && product.output_stride.is_multiple_of(8);
    let aligned = product.output.is_multiple_of(16);
    if product.wide || !whole || !aligned {
        return GemmKernel::rows_for(product.n);
    }
    GemmKernel::choose(arch, product.n)
}
