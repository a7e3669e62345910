//! The kernels of AVX2 and AVX-512: `vpmaddwd` on pairs of sixteen-bit integers.

#![expect(clippy::needless_range_loop, reason = "the registers of a tile are indexed together")]

use super::activations::Row;
use super::kernel::{Results, TOKENS};
use super::panel::{BLOCK, ROWS, Tile, WORDS};
use std::arch::x86_64::*;

/// Two tiles against up to four tokens, in registers of eight rows.
#[target_feature(enable = "avx2")]
pub(super) fn pair_avx2(
    a: Tile<'_>,
    b: Tile<'_>,
    x: &[Row<'_>],
    group: usize,
    results: &mut [Results; TOKENS],
) {
    match x {
        [x0] => avx2::<2, 1>([a, b], [x0], group, results),
        [x0, x1] => avx2::<2, 2>([a, b], [x0, x1], group, results),
        [x0, x1, x2] => avx2::<2, 3>([a, b], [x0, x1, x2], group, results),
        [x0, x1, x2, x3] => avx2::<2, 4>([a, b], [x0, x1, x2, x3], group, results),
        _ => unreachable!("one to four tokens"),
    }
}

/// One tile against up to four tokens.
#[target_feature(enable = "avx2")]
pub(super) fn single_avx2(
    a: Tile<'_>,
    x: &[Row<'_>],
    group: usize,
    results: &mut [Results; TOKENS],
) {
    for (x, result) in x.iter().zip(results.iter_mut()) {
        let mut one = [[0.0; 2 * ROWS]; TOKENS];
        avx2::<1, 1>([a], [x], group, &mut one);
        *result = one[0];
    }
}

/// Checks that every access of a kernel lies inside its slices.
#[inline(always)]
fn check<const R: usize, const T: usize>(
    w: [Tile<'_>; R],
    x: [&Row<'_>; T],
    group: usize,
) -> usize {
    let cols = x[0].values.len();
    let groups = cols / group;
    assert!(group.is_multiple_of(BLOCK) && groups * group == cols);
    for tile in w {
        assert!(tile.codes.len() == cols / BLOCK * WORDS && tile.scales.len() == groups * ROWS);
    }
    for row in x {
        assert!(row.values.len() == cols && row.bias.len() == groups && row.scales.len() == groups);
    }
    groups
}

#[target_feature(enable = "avx2")]
#[inline]
fn avx2<const R: usize, const T: usize>(
    w: [Tile<'_>; R],
    x: [&Row<'_>; T],
    group: usize,
    results: &mut [Results; TOKENS],
) {
    let groups = check(w, x, group);
    let blocks = group / BLOCK;
    let mask = _mm256_set1_epi16(15);
    let codes = w.map(|tile| tile.codes.as_ptr());
    let values = x.map(|row| row.values.as_ptr().cast::<i32>());
    // The same place of the tiles that are read next.
    let next = R * w[0].codes.len();
    let mut sums = [[_mm256_setzero_ps(); R]; T];
    for g in 0..groups {
        let mut whole = [[_mm256_setzero_si256(); R]; T];
        for t in 0..T {
            whole[t] = [_mm256_set1_epi32(x[t].bias[g]); R];
        }
        for block in g * blocks..(g + 1) * blocks {
            let mut words = [mask; R];
            for r in 0..R {
                if T == 1 {
                    _mm_prefetch::<_MM_HINT_T0>(codes[r].wrapping_add(next + block * WORDS).cast());
                }
                // SAFETY: `check` requires K / 8 blocks of 16 words in every tile.
                words[r] = unsafe { _mm256_loadu_si256(codes[r].add(block * WORDS).cast()) };
            }
            macro_rules! step {
                ($j:literal, $w:ident => $unpack:expr) => {{
                    // A loop and no `map`: vectors must not pass through functions without AVX2.
                    let mut pairs = words;
                    for r in 0..R {
                        let $w = words[r];
                        pairs[r] = $unpack;
                    }
                    for t in 0..T {
                        // SAFETY: `check` requires K values, four pairs of which a block takes.
                        let x = unsafe { values[t].add(block * 4 + $j).read_unaligned() };
                        let x = _mm256_set1_epi32(x);
                        for r in 0..R {
                            let products = _mm256_madd_epi16(pairs[r], x);
                            whole[t][r] = _mm256_add_epi32(whole[t][r], products);
                        }
                    }
                }};
            }
            step!(0, w => _mm256_and_si256(w, mask));
            step!(1, w => _mm256_and_si256(_mm256_srli_epi16::<4>(w), mask));
            step!(2, w => _mm256_and_si256(_mm256_srli_epi16::<8>(w), mask));
            step!(3, w => _mm256_srli_epi16::<12>(w));
        }
        for r in 0..R {
            // SAFETY: `check` requires eight scales of every group.
            let bits = unsafe { _mm_loadu_si128(w[r].scales.as_ptr().add(g * ROWS).cast()) };
            let scale = _mm256_castsi256_ps(_mm256_slli_epi32::<16>(_mm256_cvtepu16_epi32(bits)));
            for t in 0..T {
                let scale = _mm256_mul_ps(scale, _mm256_set1_ps(x[t].scales[g]));
                let value = _mm256_mul_ps(_mm256_cvtepi32_ps(whole[t][r]), scale);
                sums[t][r] = _mm256_add_ps(sums[t][r], value);
            }
        }
    }
    for t in 0..T {
        for r in 0..R {
            // SAFETY: results hold two tiles of eight rows, R is at most 2.
            unsafe { _mm256_storeu_ps(results[t].as_mut_ptr().add(r * ROWS), sums[t][r]) };
        }
    }
}

/// Two tiles against up to four tokens, in registers of sixteen rows.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2")]
pub(super) fn pair_avx512(
    a: Tile<'_>,
    b: Tile<'_>,
    x: &[Row<'_>],
    group: usize,
    results: &mut [Results; TOKENS],
) {
    match x {
        [x0] => avx512::<1>([a, b], [x0], group, results),
        [x0, x1] => avx512::<2>([a, b], [x0, x1], group, results),
        [x0, x1, x2] => avx512::<3>([a, b], [x0, x1, x2], group, results),
        [x0, x1, x2, x3] => avx512::<4>([a, b], [x0, x1, x2, x3], group, results),
        _ => unreachable!("one to four tokens"),
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2")]
#[inline]
fn avx512<const T: usize>(
    w: [Tile<'_>; 2],
    x: [&Row<'_>; T],
    group: usize,
    results: &mut [Results; TOKENS],
) {
    let groups = check(w, x, group);
    let blocks = group / BLOCK;
    let mask = _mm512_set1_epi16(15);
    let codes = w.map(|tile| tile.codes.as_ptr());
    let values = x.map(|row| row.values.as_ptr().cast::<i32>());
    // The same place of the tiles that are read next.
    let next = 2 * w[0].codes.len();
    let mut sums = [_mm512_setzero_ps(); T];
    for g in 0..groups {
        let mut whole = [_mm512_setzero_si512(); T];
        for t in 0..T {
            whole[t] = _mm512_set1_epi32(x[t].bias[g]);
        }
        for block in g * blocks..(g + 1) * blocks {
            if T == 1 {
                for codes in codes {
                    _mm_prefetch::<_MM_HINT_T0>(codes.wrapping_add(next + block * WORDS).cast());
                }
            }
            // SAFETY: `check` requires K / 8 blocks of 16 words in both tiles.
            let low = unsafe { _mm256_loadu_si256(codes[0].add(block * WORDS).cast()) };
            // SAFETY: as above.
            let high = unsafe { _mm256_loadu_si256(codes[1].add(block * WORDS).cast()) };
            let words = _mm512_inserti64x4::<1>(_mm512_castsi256_si512(low), high);
            macro_rules! step {
                ($j:literal, $pairs:expr) => {{
                    let pairs = $pairs;
                    for t in 0..T {
                        // SAFETY: `check` requires K values, four pairs of which a block takes.
                        let x = unsafe { values[t].add(block * 4 + $j).read_unaligned() };
                        let products = _mm512_madd_epi16(pairs, _mm512_set1_epi32(x));
                        whole[t] = _mm512_add_epi32(whole[t], products);
                    }
                }};
            }
            step!(0, _mm512_and_si512(words, mask));
            step!(1, _mm512_and_si512(_mm512_srli_epi16::<4>(words), mask));
            step!(2, _mm512_and_si512(_mm512_srli_epi16::<8>(words), mask));
            step!(3, _mm512_srli_epi16::<12>(words));
        }
        // SAFETY: `check` requires eight scales of every group.
        let low = unsafe { _mm_loadu_si128(w[0].scales.as_ptr().add(g * ROWS).cast()) };
        // SAFETY: as above.
        let high = unsafe { _mm_loadu_si128(w[1].scales.as_ptr().add(g * ROWS).cast()) };
        let bits = _mm512_cvtepu16_epi32(_mm256_set_m128i(high, low));
        let scale = _mm512_castsi512_ps(_mm512_slli_epi32::<16>(bits));
        for t in 0..T {
            let scale = _mm512_mul_ps(scale, _mm512_set1_ps(x[t].scales[g]));
            let value = _mm512_mul_ps(_mm512_cvtepi32_ps(whole[t]), scale);
            sums[t] = _mm512_add_ps(sums[t], value);
        }
    }
    for t in 0..T {
        // SAFETY: results hold sixteen rows.
        unsafe { _mm512_storeu_ps(results[t].as_mut_ptr(), sums[t]) };
    }
}
