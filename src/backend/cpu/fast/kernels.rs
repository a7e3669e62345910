//! Which instructions the `fast` kernels use.

use crate::backend::cpu::{Isa, Level};
use std::fmt;

/// The kernels of one instruction set. A value exists only for a set that this machine has.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Kernels(Set);

/// Instruction sets with kernels of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::backend::cpu) enum Set {
    /// What every machine of the target has: separate multiply and add.
    Portable,
    /// AVX2 with FMA.
    Avx2,
    /// AVX-512 F, BW, DQ, VL, with FMA.
    Avx512,
    /// As [`Set::Avx512`], with products of BF16 pairs.
    Avx512Bf16,
}

impl Set {
    const ALL: [Set; 4] = [Set::Portable, Set::Avx2, Set::Avx512, Set::Avx512Bf16];

    fn level(self) -> Level {
        match self {
            Set::Portable => Level::Portable,
            Set::Avx2 => Level::Avx2,
            Set::Avx512 | Set::Avx512Bf16 => Level::Avx512,
        }
    }

    #[cfg(target_arch = "x86_64")]
    fn present(self) -> bool {
        match self {
            Set::Portable => true,
            Set::Avx2 | Set::Avx512 => is_x86_feature_detected!("fma"),
            Set::Avx512Bf16 => {
                is_x86_feature_detected!("fma") && is_x86_feature_detected!("avx512bf16")
            }
        }
    }

    #[cfg(not(target_arch = "x86_64"))]
    fn present(self) -> bool {
        self == Set::Portable
    }
}

impl Kernels {
    /// The fastest kernels that `isa` allows.
    pub fn of(isa: Isa) -> Kernels {
        Kernels::all()
            .into_iter()
            .rev()
            .find(|k| k.0.level() <= isa.level())
            .unwrap_or(Kernels(Set::Portable))
    }

    /// Every set of kernels that this machine can execute, the plainest first.
    pub fn all() -> Vec<Kernels> {
        let executable = |set: &Set| Isa::of(set.level()).is_some() && set.present();
        Set::ALL.into_iter().filter(executable).map(Kernels).collect()
    }

    pub(in crate::backend::cpu) fn set(self) -> Set {
        self.0
    }

    /// The instructions that bits depend on, as the manifest names them.
    pub fn instructions(self) -> &'static str {
        match self.0 {
            Set::Portable => "portable",
            Set::Avx2 => "avx2_fma",
            Set::Avx512 => "avx512_fma",
            Set::Avx512Bf16 => "avx512_bf16",
        }
    }
}

impl fmt::Debug for Kernels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Kernels({})", self.instructions())
    }
}
