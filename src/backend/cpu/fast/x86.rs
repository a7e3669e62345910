//! AVX2 and AVX-512 vectors.
//!
//! A panel keeps the two k of a pair in one 32-bit word, so that widening is one operation each: a
//! shift for the even k, a mask for the odd one.

use super::panels::PAIR;
use super::simd::{LANES, Simd};
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
    // Twelve sums, the widened halves of a pair, a broadcast and the mask fill the 16 registers.
    const TOKENS: usize = 6;

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

/// Packs 16 rows of `cols` elements into a panel, eight pairs of k at a time: the words of eight rows
/// are transposed in registers, so that the panel is written from front to back. Returns how many
/// pairs are done; the caller packs the others.
#[target_feature(enable = "avx2")]
pub(super) fn pack_rows(rows: &[u16], cols: usize, panel: &mut [u16]) -> usize {
    const PAIRS: usize = 8;
    let blocks = cols / (2 * PAIRS);
    assert!(rows.len() == LANES * cols && panel.len() >= blocks * PAIRS * PAIR);
    for block in 0..blocks {
        for half in 0..2 {
            let first = half * 8;
            let mut r = [_mm256_setzero_si256(); 8];
            for (i, r) in r.iter_mut().enumerate() {
                let at = (first + i) * cols + block * 2 * PAIRS;
                // SAFETY: the assertion: 16 elements of a row from a block on exist.
                *r = unsafe { _mm256_loadu_si256(rows.as_ptr().add(at).cast()) };
            }
            let mut pairs = [_mm256_setzero_si256(); 8];
            for i in 0..4 {
                pairs[2 * i] = _mm256_unpacklo_epi32(r[2 * i], r[2 * i + 1]);
                pairs[2 * i + 1] = _mm256_unpackhi_epi32(r[2 * i], r[2 * i + 1]);
            }
            let mut fours = [_mm256_setzero_si256(); 8];
            for i in [0, 4] {
                for j in 0..2 {
                    fours[i + 2 * j] = _mm256_unpacklo_epi64(pairs[i + j], pairs[i + j + 2]);
                    fours[i + 2 * j + 1] = _mm256_unpackhi_epi64(pairs[i + j], pairs[i + j + 2]);
                }
            }
            for j in 0..4 {
                let low = _mm256_permute2x128_si256::<0x20>(fours[j], fours[j + 4]);
                let high = _mm256_permute2x128_si256::<0x31>(fours[j], fours[j + 4]);
                let at = block * PAIRS * PAIR + first * 2;
                // SAFETY: the assertion: the panel holds eight pairs of every block.
                unsafe {
                    let to = panel.as_mut_ptr().add(at);
                    _mm256_storeu_si256(to.add(j * PAIR).cast(), low);
                    _mm256_storeu_si256(to.add((j + 4) * PAIR).cast(), high);
                }
            }
        }
    }
    blocks * PAIRS
}
