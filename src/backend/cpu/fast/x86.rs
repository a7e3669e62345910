//! AVX2 and AVX-512 vectors.
//!
//! A panel keeps the two k of a pair in one 32-bit word, so that widening is one operation each: a
//! shift for the even k, a mask for the odd one.

use super::simd::Simd;
use std::arch::x86_64::*;

const HIGH: i32 = 0xffff_0000u32 as i32;

/// AVX2 with FMA: 16 lanes are two registers.
#[derive(Clone, Copy, Debug)]
pub(in crate::backend::cpu) struct Avx2;

impl Simd for Avx2 {
    type Acc = [__m256; 2];
    type Weights = [__m256; 2];
    type Fma = Avx2;
    const STEPS: usize = 2;
    // Ten sums, the pair, its two widened halves, a broadcast and the mask fill the 16 registers.
    const TOKENS: usize = 5;

    /// # Safety
    /// As the trait's.
    #[inline(always)]
    unsafe fn zero() -> Self::Acc {
        // SAFETY: the caller's promise.
        unsafe { [_mm256_setzero_ps(); 2] }
    }

    /// # Safety
    /// As the trait's.
    #[inline(always)]
    unsafe fn load(from: *const f32) -> Self::Acc {
        // SAFETY: the caller's promise.
        unsafe { [_mm256_loadu_ps(from), _mm256_loadu_ps(from.add(8))] }
    }

    /// # Safety
    /// As the trait's.
    #[inline(always)]
    unsafe fn store(to: *mut f32, acc: Self::Acc) {
        // SAFETY: the caller's promise.
        unsafe {
            _mm256_storeu_ps(to, acc[0]);
            _mm256_storeu_ps(to.add(8), acc[1]);
        }
    }

    /// # Safety
    /// As the trait's.
    #[inline(always)]
    unsafe fn weights(from: *const u16, step: usize) -> Self::Weights {
        // SAFETY: the caller's promise.
        unsafe {
            let half = |i: usize| {
                let words = _mm256_loadu_si256(from.cast::<__m256i>().add(i));
                _mm256_castsi256_ps(match step {
                    0 => _mm256_slli_epi32::<16>(words),
                    _ => _mm256_and_si256(words, _mm256_set1_epi32(HIGH)),
                })
            };
            [half(0), half(1)]
        }
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
    unsafe fn multiply(acc: Self::Acc, w: Self::Weights, x: *const u32) -> Self::Acc {
        // SAFETY: the caller's promise.
        unsafe {
            let x = _mm256_broadcast_ss(&*x.cast::<f32>());
            [_mm256_fmadd_ps(w[0], x, acc[0]), _mm256_fmadd_ps(w[1], x, acc[1])]
        }
    }
}

/// AVX-512 with FMA: 16 lanes are one register.
#[derive(Clone, Copy, Debug)]
pub(in crate::backend::cpu) struct Avx512;

impl Simd for Avx512 {
    type Acc = __m512;
    type Weights = __m512;
    type Fma = Avx512;
    const STEPS: usize = 2;
    const TOKENS: usize = 12;

    /// # Safety
    /// As the trait's.
    #[inline(always)]
    unsafe fn zero() -> Self::Acc {
        // SAFETY: the caller's promise.
        unsafe { _mm512_setzero_ps() }
    }

    /// # Safety
    /// As the trait's.
    #[inline(always)]
    unsafe fn load(from: *const f32) -> Self::Acc {
        // SAFETY: the caller's promise.
        unsafe { _mm512_loadu_ps(from) }
    }

    /// # Safety
    /// As the trait's.
    #[inline(always)]
    unsafe fn store(to: *mut f32, acc: Self::Acc) {
        // SAFETY: the caller's promise.
        unsafe { _mm512_storeu_ps(to, acc) }
    }

    /// # Safety
    /// As the trait's.
    #[inline(always)]
    unsafe fn weights(from: *const u16, step: usize) -> Self::Weights {
        // SAFETY: the caller's promise.
        unsafe {
            let words = _mm512_loadu_si512(from.cast());
            _mm512_castsi512_ps(match step {
                0 => _mm512_slli_epi32::<16>(words),
                _ => _mm512_and_si512(words, _mm512_set1_epi32(HIGH)),
            })
        }
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
    unsafe fn multiply(acc: Self::Acc, w: Self::Weights, x: *const u32) -> Self::Acc {
        // SAFETY: the caller's promise.
        unsafe { _mm512_fmadd_ps(w, _mm512_set1_ps(*x.cast::<f32>()), acc) }
    }
}

/// AVX-512 with `VDPBF16PS`: a pair is one instruction.
///
/// The instruction flushes subnormal inputs and results to zero and rounds to nearest even whatever
/// the control register says; both products of a pair are added in it, the odd k before the even one.
#[derive(Clone, Copy, Debug)]
pub(in crate::backend::cpu) struct Avx512Bf16;

impl Simd for Avx512Bf16 {
    type Acc = __m512;
    type Weights = __m512i;
    type Fma = Avx512;
    const STEPS: usize = 1;
    const TOKENS: usize = 12;

    /// # Safety
    /// As the trait's.
    #[inline(always)]
    unsafe fn zero() -> Self::Acc {
        // SAFETY: the caller's promise.
        unsafe { Avx512::zero() }
    }

    /// # Safety
    /// As the trait's.
    #[inline(always)]
    unsafe fn load(from: *const f32) -> Self::Acc {
        // SAFETY: the caller's promise.
        unsafe { Avx512::load(from) }
    }

    /// # Safety
    /// As the trait's.
    #[inline(always)]
    unsafe fn store(to: *mut f32, acc: Self::Acc) {
        // SAFETY: the caller's promise.
        unsafe { Avx512::store(to, acc) }
    }

    /// # Safety
    /// As the trait's.
    #[inline(always)]
    unsafe fn weights(from: *const u16, _: usize) -> Self::Weights {
        // SAFETY: the caller's promise.
        unsafe { _mm512_loadu_si512(from.cast()) }
    }

    /// # Safety
    /// As the trait's.
    #[inline(always)]
    unsafe fn wide(_: *const f32) -> Self::Weights {
        unreachable!("FP32 rows are multiplied by `Avx512`")
    }

    /// # Safety
    /// As the trait's.
    #[inline(always)]
    unsafe fn multiply(acc: Self::Acc, w: Self::Weights, x: *const u32) -> Self::Acc {
        // SAFETY: the caller's promise; the types are 512 bits of BF16 pairs either way.
        unsafe {
            let x = _mm512_set1_epi32(*x as i32);
            _mm512_dpbf16_ps(
                acc,
                std::mem::transmute::<__m512i, __m512bh>(w),
                std::mem::transmute::<__m512i, __m512bh>(x),
            )
        }
    }
}
