//! Conformance of the `fast` products, on every instruction set of this machine.

use super::{Arena, Kernels, Panels, Set, gemm};
use crate::backend::cpu::pool::Pool;
use crate::tensor::{Shared, bf16_bits, bf16_from_bits, round_bf16};
use std::sync::Arc;

fn noise(n: usize, seed: u32) -> Vec<f32> {
    let mut state = seed;
    (0..n)
        .map(|_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            round_bf16((state >> 8) as f32 / 8_388_608.0 - 1.0)
        })
        .collect()
}

fn packed(w: &[f32], cols: usize) -> Panels {
    let bits = Shared::owned(w.iter().map(|v| bf16_bits(*v)).collect());
    let mut arena = Arena::for_matrices([[w.len() / cols, cols]].into_iter()).unwrap();
    let placed = arena.pack(&bits, cols);
    placed.within(&Arc::new(arena))
}

/// The definition, in the plainest code; `VDPBF16PS` is covered by [`close`] alone.
fn oracle(kernels: Kernels, x: &[f32], w: &[f32]) -> Option<f32> {
    let step: fn(f32, f32, f32) -> f32 = match kernels.set() {
        Set::Portable => |sum, w, x| sum + w * x,
        Set::Avx2 | Set::Avx512 => |sum, w, x| w.mul_add(x, sum),
        Set::Avx512Bf16 => return None,
    };
    Some(w.iter().zip(x).fold(0.0, |sum, (w, x)| step(sum, *w, *x)))
}

fn close(got: f32, x: &[f32], w: &[f32]) -> bool {
    let products = x.iter().zip(w).map(|(x, w)| f64::from(*x) * f64::from(*w));
    let (exact, scale) = products.fold((0.0, 0.0), |(s, a), p| (s + p, a + p.abs()));
    (f64::from(got) - exact).abs() <= scale * x.len() as f64 * 6e-8 + 1e-30
}

#[test]
fn every_row_has_the_bits_of_the_definition_in_every_tile() {
    let pool = Pool::new(2).unwrap();
    for kernels in Kernels::all() {
        for k in [1, 5, 16, 64, 100, 512, 576, 801] {
            for n in [1, 4, 16, 33, 100] {
                let w = noise(n * k, 7);
                let weight = packed(&w, k);
                let x = noise(29 * k, 11);
                let mut first: Option<Vec<u32>> = None;
                for tokens in [1, 2, 3, 5, 8, 13, 29] {
                    let mut out = vec![f32::NAN; tokens * n];
                    pool.install(|| gemm(kernels, &x[..tokens * k], &weight, &mut out, false));
                    for (i, got) in out.iter().enumerate() {
                        let (x, w) = (&x[i / n * k..][..k], &w[i % n * k..][..k]);
                        let case = || format!("{kernels:?} k={k} n={n} tokens={tokens} at {i}");
                        assert!(close(*got, x, w), "{}", case());
                        if let Some(expected) = oracle(kernels, x, w) {
                            assert_eq!(got.to_bits(), expected.to_bits(), "{}", case());
                        }
                    }
                    // Where the instruction has no plain definition, one token is the standard.
                    let row: Vec<u32> = out[..n].iter().map(|v| v.to_bits()).collect();
                    assert_eq!(*first.get_or_insert_with(|| row.clone()), row, "{kernels:?}");
                }
            }
        }
    }
}

#[test]
fn rows_of_a_batch_have_the_bits_of_one_token_alone() {
    for kernels in Kernels::all() {
        let (k, n, tokens) = (1000, 40, 31);
        let weight = packed(&noise(n * k, 3), k);
        let x = noise(tokens * k, 5);
        let mut all = vec![f32::NAN; tokens * n];
        gemm(kernels, &x, &weight, &mut all, true);
        for (token, expected) in all.chunks_exact(n).enumerate() {
            let mut alone = vec![f32::NAN; n];
            gemm(kernels, &x[token * k..][..k], &weight, &mut alone, true);
            let bits = |v: &[f32]| v.iter().map(|v| v.to_bits()).collect::<Vec<_>>();
            assert_eq!(bits(&alone), bits(expected), "{kernels:?} token {token}");
            assert!(alone.iter().all(|v| bf16_from_bits(bf16_bits(*v)) == *v));
        }
    }
}
