//! Launches of named kernels, with functions looked up once.

use super::vendor::VendorProducts;
use crate::backend::Policy;
use crate::backend::cuda::launch::{Argument, Launch};
use crate::backend::cuda::{CudaError, Device};
use cudarc::driver::CudaFunction;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

/// A device with its functions at hand.
#[derive(Debug)]
pub(super) struct Launcher {
    pub(super) device: Arc<Device>,
    /// Elements are BF16 (else FP32).
    pub(super) round: bool,
    /// Policy `fast`: rows of several tokens may take another order than a single one.
    pub(super) fast: bool,
    /// The vendor's products, where the policy may use them.
    pub(super) vendor: Option<VendorProducts>,
    functions: Mutex<HashMap<String, Function>>,
}

struct Function(CudaFunction);

impl std::fmt::Debug for Function {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Function")
    }
}

impl Launcher {
    pub(super) fn new(device: &Arc<Device>, policy: Policy) -> Launcher {
        Launcher {
            device: Arc::clone(device),
            round: policy.rounds_to_bf16(),
            fast: policy == Policy::Fast,
            vendor: (policy == Policy::Fast).then(|| VendorProducts::open(device)).flatten(),
            functions: Mutex::default(),
        }
    }

    /// `op` for the policy's element type.
    pub(super) fn typed(&self, op: &str) -> String {
        format!("{op}_{}", if self.round { "bf16" } else { "f32" })
    }

    /// A kernel by source and name.
    pub(super) fn function(
        &self,
        source: &'static str,
        entry: &str,
    ) -> Result<CudaFunction, CudaError> {
        let mut all = self.functions.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = all.get(entry) {
            return Ok(found.0.clone());
        }
        let function = self.device.kernel(source, entry)?;
        all.insert(entry.to_owned(), Function(function.clone()));
        Ok(function)
    }

    /// Puts a launch into the device's stream. Kernels of the engine wait for their predecessor
    /// themselves, so they may be scheduled before its end.
    ///
    /// # Safety
    /// As [`Launch::run`].
    pub(super) unsafe fn run(
        &self,
        source: &'static str,
        entry: &str,
        launch: Launch,
        arguments: Vec<Argument>,
    ) -> Result<(), CudaError> {
        let function = self.function(source, entry)?;
        let dependent = self.device.arch().has_dependent_launch();
        let launch = Launch { dependent, ..launch };
        // SAFETY: the caller answers for arguments and memory.
        unsafe { launch.run(&self.device, &function, arguments) }
    }
}

/// A launch of `x` × `y` × `z` blocks.
pub(super) fn grid(x: u32, y: u32, z: u32, threads: u32) -> Launch {
    Launch { depth: z, ..Launch { grid: (x, y), ..Launch::plain(x, threads) } }
}
