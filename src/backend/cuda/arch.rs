//! The architectures that kernels are compiled for.

use std::fmt;
use std::str::FromStr;

/// A GPU architecture as the compiler is asked for it, e.g. `sm_90a`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct KernelArch {
    pub major: u32,
    pub minor: u32,
    /// The architecture-specific instruction set (`a`): Hopper's and Blackwell's warpgroup
    /// instructions exist only there.
    pub specific: bool,
}

const fn arch(major: u32, minor: u32, specific: bool) -> KernelArch {
    KernelArch { major, minor, specific }
}

/// Every architecture that `assay kernels build` covers.
pub const KERNEL_ARCHS: [KernelArch; 6] = [
    arch(8, 0, false),
    arch(8, 6, false),
    arch(8, 9, false),
    arch(9, 0, true),
    arch(10, 0, true),
    arch(12, 0, false),
];

impl KernelArch {
    /// Hopper with its warpgroup instructions.
    pub const SM_90A: KernelArch = arch(9, 0, true);

    /// The exact architecture of a device of this compute capability.
    pub fn of_device(major: u32, minor: u32) -> KernelArch {
        arch(major, minor, matches!(major, 9 | 10))
    }

    /// Whether it has the warpgroup matrix instruction (`wgmma`), which no other generation has.
    pub fn has_wgmma(self) -> bool {
        self == KernelArch::SM_90A
    }

    /// Whether kernels may be launched before their predecessor has ended.
    pub fn has_dependent_launch(self) -> bool {
        self.major >= 9
    }
}

impl fmt::Display for KernelArch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let suffix = if self.specific { "a" } else { "" };
        f.pad(&format!("sm_{}{}{suffix}", self.major, self.minor))
    }
}

impl FromStr for KernelArch {
    type Err = String;

    /// Accepts `sm_90a` and `90a`, of the list.
    fn from_str(text: &str) -> Result<KernelArch, String> {
        let name = format!("sm_{}", text.trim_start_matches("sm_"));
        KERNEL_ARCHS.into_iter().find(|a| a.to_string() == name).ok_or_else(|| {
            let all: Vec<String> = KERNEL_ARCHS.iter().map(KernelArch::to_string).collect();
            format!("unknown architecture `{text}`; architectures are {}", all.join(", "))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back() {
        for arch in KERNEL_ARCHS {
            assert_eq!(arch.to_string().parse(), Ok(arch));
        }
        assert_eq!("90a".parse(), Ok(KernelArch::SM_90A));
        assert!("sm_90".parse::<KernelArch>().unwrap_err().contains("sm_90a"));
        assert_eq!(KernelArch::of_device(9, 0), KernelArch::SM_90A);
        assert_eq!(KernelArch::of_device(8, 7).to_string(), "sm_87");
    }
}
