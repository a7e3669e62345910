//! What a `fast` kernel needs of an instruction set.
//!
//! One accumulator holds [`LANES`] outputs, one lane each, and a step multiplies one *pair* of
//! consecutive k into it, the even k first. Every kernel is written once over [`Simd`] and compiled
//! for each instruction set by [`dispatch!`]; an output is therefore the same chain of operations
//! whatever tile it is computed in.

/// Outputs of one accumulator, and weight rows of one panel.
pub(in crate::backend::cpu) const LANES: usize = 16;

/// Vector operations of an instruction set on 16 lanes.
///
/// A pair is multiplied in [`Simd::STEPS`] steps; an activation row is a list of 32-bit words, one per
/// step: FP32 values, or BF16 pairs where the instruction takes them.
pub(in crate::backend::cpu) trait Simd: Copy {
    /// FP32 sums of 16 outputs.
    type Acc: Copy;
    /// What one step multiplies of 16 rows.
    type Weights: Copy;
    /// Itself, or the set whose activations stay FP32.
    type Fma: Simd<Fma = Self::Fma>;

    /// Steps of a pair: 2, or 1 where one instruction multiplies both k.
    const STEPS: usize;
    /// Tokens of the largest tile of one panel that stays in registers.
    const TOKENS: usize;

    /// # Safety
    /// This machine must have the instruction set.
    unsafe fn zero() -> Self::Acc;

    /// # Safety
    /// As `zero`; 16 values must be readable.
    unsafe fn load(from: *const f32) -> Self::Acc;

    /// # Safety
    /// As `zero`; 16 values must be writable.
    unsafe fn store(to: *mut f32, acc: Self::Acc);

    /// Step `step` of one pair of 16 BF16 rows, `[row][2]`.
    ///
    /// # Safety
    /// As `zero`; 32 elements must be readable.
    unsafe fn weights(from: *const u16, step: usize) -> Self::Weights;

    /// 16 FP32 values as one step's weights.
    ///
    /// # Safety
    /// As `zero`; 16 values must be readable. Only of [`Simd::Fma`] sets.
    unsafe fn wide(from: *const f32) -> Self::Weights;

    /// acc ← acc + w·x, the word at `x` in every lane.
    ///
    /// # Safety
    /// As `zero`; the word must be readable.
    unsafe fn multiply(acc: Self::Acc, w: Self::Weights, x: *const u32) -> Self::Acc;
}

/// Portable code: separate multiply and add.
#[derive(Clone, Copy, Debug)]
pub(in crate::backend::cpu) struct Portable;

impl Simd for Portable {
    type Acc = [f32; LANES];
    type Weights = [f32; LANES];
    type Fma = Portable;
    const STEPS: usize = 2;
    const TOKENS: usize = 2;

    /// # Safety
    /// As the trait's.
    #[inline(always)]
    unsafe fn zero() -> Self::Acc {
        [0.0; LANES]
    }

    /// # Safety
    /// As the trait's.
    #[inline(always)]
    unsafe fn load(from: *const f32) -> Self::Acc {
        // SAFETY: the caller's promise.
        unsafe { from.cast::<Self::Acc>().read_unaligned() }
    }

    /// # Safety
    /// As the trait's.
    #[inline(always)]
    unsafe fn store(to: *mut f32, acc: Self::Acc) {
        // SAFETY: the caller's promise.
        unsafe { to.cast::<Self::Acc>().write_unaligned(acc) }
    }

    /// # Safety
    /// As the trait's.
    #[inline(always)]
    unsafe fn weights(from: *const u16, step: usize) -> Self::Weights {
        // SAFETY: the caller's promise.
        let both = unsafe { from.cast::<[[u16; 2]; LANES]>().read_unaligned() };
        both.map(|pair| f32::from_bits(u32::from(pair[step]) << 16))
    }

    /// # Safety
    /// As the trait's.
    #[inline(always)]
    unsafe fn wide(from: *const f32) -> Self::Weights {
        // SAFETY: the caller's promise.
        unsafe { Self::load(from) }
    }

    /// # Safety
    /// As the trait's.
    #[inline(always)]
    unsafe fn multiply(mut acc: Self::Acc, w: Self::Weights, x: *const u32) -> Self::Acc {
        // SAFETY: the caller's promise.
        let x = f32::from_bits(unsafe { *x });
        for j in 0..LANES {
            acc[j] += w[j] * x;
        }
        acc
    }
}

/// `dispatch! { pub(super) fn name = body(a: A, b: B); }` defines `name(kernels, a, b)`, which runs the `#[inline(always)]` generic `body::<S>` compiled for the
/// instruction set of `kernels`.
macro_rules! dispatch {
    ($($(#[$meta:meta])* $vis:vis fn $name:ident = $body:ident($($arg:ident: $ty:ty),* $(,)?);)*) => {$(
        $(#[$meta])*
        #[allow(clippy::too_many_arguments, reason = "a kernel names every operand")]
        $vis fn $name(kernels: $crate::backend::cpu::fast::Kernels, $($arg: $ty),*) {
            use $crate::backend::cpu::fast::{Portable, Set};
            #[cfg(target_arch = "x86_64")]
            {
                use $crate::backend::cpu::fast::{Avx2, Avx512, Avx512Bf16};
                #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,avx2,fma")]
                fn avx512_bf16($($arg: $ty),*) { $body::<Avx512Bf16>($($arg),*) }
                #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
                fn avx512($($arg: $ty),*) { $body::<Avx512>($($arg),*) }
                #[target_feature(enable = "avx2,fma")]
                fn avx2($($arg: $ty),*) { $body::<Avx2>($($arg),*) }
                match kernels.set() {
                    // SAFETY: a `Kernels` exists only for a set that this machine has.
                    Set::Avx512Bf16 => return unsafe { avx512_bf16($($arg),*) },
                    // SAFETY: as above.
                    Set::Avx512 => return unsafe { avx512($($arg),*) },
                    // SAFETY: as above.
                    Set::Avx2 => return unsafe { avx2($($arg),*) },
                    Set::Portable => {}
                }
            }
            let _ = kernels;
            $body::<Portable>($($arg),*)
        }
    )*};
}
pub(in crate::backend::cpu) use dispatch;
