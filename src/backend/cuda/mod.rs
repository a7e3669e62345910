//! The CUDA backend: libraries found at run time, kernels compiled for the device at hand.
//!
//! Kernels are CUDA C++ in `kernels/`, embedded in the binary. For a device, the image of a source
//! is taken from the on-disk cache, from images embedded in this build, or compiled by NVRTC and
//! cached. Nothing here needs CUDA to build, and probing for it never panics.

mod arch;
mod cache;
mod catalogue;
mod compile;
mod device;
mod error;
mod gauge;
mod gemm;
mod image;
mod launch;
mod library;
mod matmul;
mod model;
mod nvml;
pub mod probe;
mod resources;
mod source;
mod wgmma;

pub use arch::{KERNEL_ARCHS, KernelArch};
pub use cache::{ImageKey, KernelCache};
pub use catalogue::{catalogue, kernel_names};
pub use compile::{Image, NUMERIC_OPTIONS, compile, compiler};
pub use device::{Device, DeviceFacts, devices};
pub use error::CudaError;
pub use gauge::{DeviceGauge, DeviceState, ThrottleReason};
pub use gemm::{Chaining, GemmKernel, Product};
pub use image::{Built, FoundImage, ImageOrigin, build_all, find_image, write_pack};
pub use launch::{Argument, Launch, tensor_map};
pub use library::{Library, Origin, nvrtc_version};
pub use matmul::{Blas, BlasPlan};
pub use model::{BoundWeight, CudaModel, CudaOptions, Join, Joins, policy_bindings};
pub use resources::KernelResources;
pub use source::KernelSource;
