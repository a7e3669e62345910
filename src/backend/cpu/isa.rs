//! Instruction sets and run-time dispatch.
//!
//! Every kernel is written once, in portable code over arrays of 16 lanes with separate multiply
//! and add. [`multiversion!`] compiles it for each instruction set; since Rust never contracts or
//! reorders floating-point operations, all versions give the same bits, and the compiler's
//! vectoriser does the rest.

use serde::{Deserialize, Serialize};
use std::fmt;

/// The instruction set kernels are compiled for.
///
/// A value exists only for a set that this machine has, so that dispatching on it is sound.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Isa(Level);

/// The name of an instruction set, whether or not this machine has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Level {
    /// What every machine of the target has (SSE2 on x86-64).
    Portable,
    Avx2,
    Avx512,
}

impl Level {
    /// Every level, the plainest first.
    pub const ALL: [Level; 3] = [Level::Portable, Level::Avx2, Level::Avx512];
}

impl Isa {
    /// The widest instruction set of this machine.
    pub fn detect() -> Isa {
        Level::ALL.into_iter().rev().find_map(Isa::of).unwrap_or(Isa(Level::Portable))
    }

    /// Portable code.
    pub const PORTABLE: Isa = Isa(Level::Portable);

    /// The instruction set of that name, if this machine has it.
    pub fn of(level: Level) -> Option<Isa> {
        level.present().then_some(Isa(level))
    }

    /// Every instruction set this machine has, the plainest first.
    pub fn all() -> Vec<Isa> {
        Level::ALL.into_iter().filter_map(Isa::of).collect()
    }

    /// Its name.
    pub fn level(self) -> Level {
        self.0
    }
}

impl Level {
    #[cfg(target_arch = "x86_64")]
    fn present(self) -> bool {
        match self {
            Level::Portable => true,
            Level::Avx2 => is_x86_feature_detected!("avx2"),
            Level::Avx512 => {
                is_x86_feature_detected!("avx2")
                    && is_x86_feature_detected!("avx512f")
                    && is_x86_feature_detected!("avx512bw")
                    && is_x86_feature_detected!("avx512dq")
                    && is_x86_feature_detected!("avx512vl")
            }
        }
    }

    #[cfg(not(target_arch = "x86_64"))]
    fn present(self) -> bool {
        self == Level::Portable
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Level::Portable => "portable",
            Level::Avx2 => "avx2",
            Level::Avx512 => "avx512",
        })
    }
}

impl std::str::FromStr for Level {
    type Err = String;

    fn from_str(text: &str) -> Result<Level, String> {
        Level::ALL.into_iter().find(|l| l.to_string() == text).ok_or_else(|| {
            format!("unknown instruction set `{text}`; known are portable, avx2, avx512")
        })
    }
}

impl fmt::Debug for Isa {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Isa({})", self.0)
    }
}

/// `multiversion! { pub(super) fn name = body(a: A, b: B) -> R; }` defines `name(isa, a, b)`, which
/// runs the `#[inline(always)]` function `body` compiled for `isa`.
macro_rules! multiversion {
    ($($(#[$meta:meta])* $vis:vis fn $name:ident $(<$($g:ident: $bound:path),+>)? = $body:ident(
        $($arg:ident: $ty:ty),* $(,)?) $(-> $ret:ty)?;)*) => {$(
        $(#[$meta])*
        #[allow(clippy::too_many_arguments, reason = "a kernel names every operand")]
        $vis fn $name $(<$($g: $bound),+>)? (isa: $crate::backend::cpu::Isa, $($arg: $ty),*) $(-> $ret)? {
            #[cfg(target_arch = "x86_64")]
            {
                #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2")]
                fn avx512 $(<$($g: $bound),+>)? ($($arg: $ty),*) $(-> $ret)? { $body($($arg),*) }
                #[target_feature(enable = "avx2")]
                fn avx2 $(<$($g: $bound),+>)? ($($arg: $ty),*) $(-> $ret)? { $body($($arg),*) }
                match isa.level() {
                    // SAFETY: an `Isa` exists only for an instruction set that this machine has.
                    $crate::backend::cpu::Level::Avx512 => return unsafe { avx512($($arg),*) },
                    // SAFETY: as above.
                    $crate::backend::cpu::Level::Avx2 => return unsafe { avx2($($arg),*) },
                    $crate::backend::cpu::Level::Portable => {}
                }
            }
            let _ = isa;
            $body($($arg),*)
        }
    )*};
}
pub(super) use multiversion;
