//! What is read before anything is said.

use super::CudaFacts;
use crate::units::{BUILD, Build, Machine};

/// Facts that findings are made from.
#[derive(Clone, Debug, PartialEq)]
pub struct Facts {
    pub machine: Machine,
    pub build: Build,
    /// The instruction set that CPU kernels run with: `portable`, `avx2`, `avx512`.
    pub kernels: String,
    pub cuda: CudaFacts,
}

impl Facts {
    /// Reads the facts of this machine now.
    pub fn probe() -> Facts {
        Facts {
            machine: Machine::probe(),
            build: BUILD,
            kernels: crate::backend::cpu::Isa::detect().level().to_string(),
            cuda: CudaFacts::probe(),
        }
    }
}
