//! What can go wrong between the engine and a CUDA device.

use super::KernelArch;

/// An error of the CUDA backend. Messages say what was looked for, and what to do about it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CudaError {
    /// A library that the operation needs cannot be loaded.
    #[error("{library} not found; {remedy}")]
    LibraryMissing { library: &'static str, remedy: &'static str },
    /// The driver is there, the device is not.
    #[error("no CUDA device {ordinal}: this machine has {count}")]
    NoDevice { ordinal: usize, count: usize },
    /// The driver refused a call.
    #[error("{doing}: {code}")]
    Driver { doing: String, code: String },
    /// A kernel source is not valid for an architecture: a bug of ours.
    #[error("kernel source `{kernel}` does not compile for {arch}:\n{log}")]
    Compile { kernel: &'static str, arch: KernelArch, log: String },
    /// Neither cache nor build nor compiler gives an image for the device.
    #[error(
        "no image of kernel source `{kernel}` for {arch}: not in the cache ({cache}), not built \
         in, and {compiler}"
    )]
    NoImage { kernel: &'static str, arch: KernelArch, cache: String, compiler: String },
    /// A kernel that does not exist on the device's architecture was asked for.
    #[error("kernel `{entry}` of `{kernel}` is not built for {arch}")]
    NoEntry { kernel: &'static str, entry: String, arch: KernelArch },
    /// A shape or option that a kernel's entry point refuses.
    #[error("{kernel}: expected {expected}, found {found}")]
    Refused { kernel: &'static str, expected: String, found: String },
    /// The device has not the memory that something needs; nothing was allocated.
    #[error("the {what} need {needed_bytes} bytes of device memory, {free_bytes} are free")]
    OutOfMemory { what: &'static str, needed_bytes: u64, free_bytes: u64 },
    /// The vendor's matrix library refused a call.
    #[error("cuBLASLt: {doing}: {code}")]
    Blas { doing: &'static str, code: String },
}

/// Names the call that a driver error came from.
pub(super) trait Doing<T> {
    fn doing(self, what: impl Into<String>) -> Result<T, CudaError>;
}

impl<T> Doing<T> for Result<T, cudarc::driver::DriverError> {
    fn doing(self, what: impl Into<String>) -> Result<T, CudaError> {
        self.map_err(|error| CudaError::Driver {
            doing: what.into(),
            code: format!("{:?}", error.0),
        })
    }
}
