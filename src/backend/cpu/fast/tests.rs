//! Conformance of the `fast` products, on every instruction set of this machine.

use super::panels::{len, pack_matrix};
use super::{
    Kernels, Panels, Part, Product, Set, attention, gdn_commit, gdn_rows, gemm, products, write,
};
use crate::backend::cpu::GROUP_TOKENS;
use crate::backend::cpu::arena::Arena;
use crate::backend::cpu::attention_core::Shape;
use crate::backend::cpu::gdn_core::Inputs;
use crate::backend::cpu::math::silu;
use crate::backend::cpu::pool::Pool;
use crate::backend::{CacheKind, CacheSpec};
use crate::descriptor::GatedDeltaNet;
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
    let mut arena = Arena::for_pieces([len([w.len() / cols, cols])].into_iter()).unwrap();
    let placed = pack_matrix(&mut arena, &bits, cols);
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
fn products_of_one_job_have_the_bits_of_products_by_themselves() {
    let pool = Pool::new(2).unwrap();
    for kernels in Kernels::all() {
        for k in [64, 801] {
            let weights = [3usize, 100, 16, 65].map(|n| packed(&noise(n * k, n as u32), k));
            for tokens in [1, 6, 40] {
                let x = noise(tokens * k, 9);
                let empty = || weights.each_ref().map(|w| vec![f32::NAN; tokens * w.rows]);
                let (mut alone, mut together) = (empty(), empty());
                for (weight, out) in weights.iter().zip(&mut alone) {
                    pool.install(|| gemm(kernels, &x, weight, out, true));
                }
                let job = weights.iter().zip(&mut together);
                let job = job.map(|(weight, out)| Product { weight, up: None, out, round: true });
                pool.install(|| products(kernels, &x, job));
                for (alone, together) in alone.iter().zip(&together) {
                    let bits = |v: &[f32]| v.iter().map(|v| v.to_bits()).collect::<Vec<_>>();
                    assert_eq!(bits(alone), bits(together), "{kernels:?} k={k} tokens={tokens}");
                }
            }
        }
    }
}

#[test]
fn blocks_of_tokens_and_panels_change_no_bit() {
    let pool = Pool::new(2).unwrap();
    for kernels in Kernels::all() {
        // Activations beyond the second cache, several blocks of k, of tokens and of panels.
        let (k, n, tokens) = (900, 200, 251);
        let weight = packed(&noise(n * k, 3), k);
        let x = noise(tokens * k, 5);
        let mut all = vec![f32::NAN; tokens * n];
        pool.install(|| gemm(kernels, &x, &weight, &mut all, false));
        for token in [0, 1, 84, 119, 120, 167, 250] {
            let mut alone = vec![f32::NAN; n];
            gemm(kernels, &x[token * k..][..k], &weight, &mut alone, false);
            let bits = |v: &[f32]| v.iter().map(|v| v.to_bits()).collect::<Vec<_>>();
            assert_eq!(bits(&alone), bits(&all[token * n..][..n]), "{kernels:?} token {token}");
        }
    }
}

#[test]
fn panels_hold_every_element_at_its_place() {
    for (rows, cols) in [(16, 64), (40, 37), (33, 16), (5, 7), (64, 100)] {
        let bits: Vec<u16> = (0..rows * cols).map(|i| i as u16 + 1).collect();
        let mut arena = Arena::for_pieces([len([rows, cols])].into_iter()).unwrap();
        let placed = pack_matrix(&mut arena, &Shared::owned(bits.clone()), cols);
        let panels = placed.within(&Arc::new(arena));
        let mut sum = 0u64;
        for (i, bits) in bits.iter().enumerate() {
            let (row, k) = (i / cols, i % cols);
            let at = k / 2 * 32 + row % 16 * 2 + k % 2;
            assert_eq!(panels.from(row / 16)[at], *bits, "{rows}x{cols}: row {row}, k {k}");
            sum += u64::from(*bits);
        }
        // Everything else is zero.
        assert_eq!(panels.from(0).iter().map(|e| u64::from(*e)).sum::<u64>(), sum);
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

/// Softmax attention in FP64 over the same BF16 operands.
fn exact_attention(q: &[f32], k: &[f32], v: &[f32], scale: f32) -> Vec<f64> {
    let d = q.len();
    let dot = |k: &[f32]| q.iter().zip(k).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum::<f64>();
    let scores: Vec<f64> = k.chunks_exact(d).map(|k| dot(k) * f64::from(scale)).collect();
    let max = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let p: Vec<f64> = scores.iter().map(|s| (s - max).exp()).collect();
    let total: f64 = p.iter().sum();
    (0..d)
        .map(|c| {
            p.iter().zip(v.chunks_exact(d)).map(|(p, v)| p * f64::from(v[c])).sum::<f64>() / total
        })
        .collect()
}

#[test]
fn attention_has_the_same_bits_in_any_cut_and_the_exact_values() {
    let pool = Pool::new(2).unwrap();
    for (heads, kv_heads, head_dim) in [(6, 2, 64), (3, 3, 48), (4, 1, 40), (7, 1, 16)] {
        let tokens = 1100;
        let width = kv_heads * head_dim;
        let q = noise(tokens * heads * head_dim, 1);
        let (k, v) = (noise(tokens * width, 2), noise(tokens * width, 3));
        let (value_dim, kind) = (head_dim, CacheKind::Full);
        let spec = CacheSpec { layer: 0, kv_heads, head_dim, value_dim, kind };
        let scale = 1.0 / (head_dim as f32).sqrt();
        let shape = Shape { heads, kv_heads, head_dim, scale, window: None, round: false };
        for kernels in Kernels::all() {
            let run = |cuts: &[usize]| {
                let (mut pages, mut out) = (Vec::new(), vec![f32::NAN; q.len()]);
                let mut start = 0;
                for end in cuts.iter().copied().chain([tokens]) {
                    let rows = start * width..end * width;
                    write(&mut pages, &spec, start, &k[rows.clone()], &v[rows]);
                    let rows = start * heads * head_dim..end * heads * head_dim;
                    let (q, out) = (&q[rows.clone()], &mut out[rows]);
                    pool.install(|| attention(kernels, q, &pages, start, shape, out));
                    start = end;
                }
                out
            };
            let whole = run(&[]);
            let cut: Vec<usize> = (1..70).chain([255, 256, 257, 600]).chain(1090..tokens).collect();
            for (i, (a, b)) in whole.iter().zip(run(&cut)).enumerate() {
                assert_eq!(a.to_bits(), b.to_bits(), "{kernels:?} {heads}x{head_dim} at {i}");
            }
            for (row, head) in [(0, 0), (1, heads - 1), (300, 1), (tokens - 1, heads / 2)] {
                let kv = head / (heads / kv_heads);
                let of = |x: &[f32]| -> Vec<f32> {
                    let rows = x.chunks_exact(width).take(row + 1);
                    rows.flat_map(|r| r[kv * head_dim..][..head_dim].to_vec()).collect()
                };
                let at = (row * heads + head) * head_dim;
                let exact = exact_attention(&q[at..][..head_dim], &of(&k), &of(&v), scale);
                for (got, exact) in whole[at..].iter().zip(exact) {
                    assert!((f64::from(*got) - exact).abs() < 2e-6, "{kernels:?} {got} {exact}");
                }
            }
        }
    }
}

#[test]
fn rows_of_a_group_have_the_same_bits_in_any_cut_and_follow_the_recurrence() {
    for (key_dim, value_dim) in [(16, 16), (32, 40), (128, 128), (10, 7)] {
        let dims =
            GatedDeltaNet { key_heads: 1, value_heads: 1, key_dim, value_dim, conv_width: 4 };
        let rows = GROUP_TOKENS;
        let unit = |seed: u32| {
            let mut x = noise(rows * key_dim, seed);
            for row in x.chunks_exact_mut(key_dim) {
                let norm = row.iter().map(|x| x * x).sum::<f32>().sqrt();
                row.iter_mut().for_each(|x| *x /= norm);
            }
            x
        };
        let (q, k, v) = (unit(1), unit(2), noise(rows * value_dim, 3));
        let log_decay: Vec<f32> = noise(rows, 4).iter().map(|x| -x.abs()).collect();
        let beta: Vec<f32> = noise(rows, 5).iter().map(|x| x.abs()).collect();
        let s0 = noise(key_dim * value_dim, 6);
        let inputs = Inputs { q: &q, k: &k, v: &v, log_decay: &log_decay, beta: &beta };
        for kernels in Kernels::all() {
            let run = |cuts: &[usize]| {
                let mut u = vec![f32::NAN; rows * value_dim];
                let (mut decay, mut o) = (vec![f64::NAN; rows], vec![f32::NAN; rows * value_dim]);
                let mut first = 0;
                for end in cuts.iter().copied().chain([rows]) {
                    let count = end - first;
                    let part = Part { inputs, dims, head: 0, done: first, first, count };
                    let o = &mut o[first * value_dim..end * value_dim];
                    gdn_rows(kernels, part, &s0, &k, &mut u, &mut decay, o);
                    first = end;
                }
                let mut next = vec![f32::NAN; s0.len()];
                gdn_commit(kernels, &s0, &k, &u, &decay, value_dim, &mut next);
                o.into_iter().chain(next).collect::<Vec<f32>>()
            };
            let whole = run(&[]);
            for cuts in [(1..rows).collect::<Vec<_>>(), vec![5, 6, 33], vec![63]] {
                let bits = |x: &[f32]| x.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
                assert_eq!(bits(&run(&cuts)), bits(&whole), "{kernels:?} {key_dim}x{value_dim}");
            }
            // The recurrence, in FP64.
            let mut s: Vec<f64> = s0.iter().map(|x| f64::from(*x)).collect();
            let mut exact = Vec::new();
            for i in 0..rows {
                let (q, k) = (&q[i * key_dim..][..key_dim], &k[i * key_dim..][..key_dim]);
                s.iter_mut().for_each(|s| *s *= f64::from(log_decay[i]).exp());
                let read = |s: &[f64], x: &[f32], c: usize| -> f64 {
                    (0..key_dim).map(|d| s[d * value_dim + c] * f64::from(x[d])).sum()
                };
                let u: Vec<f64> = (0..value_dim)
                    .map(|c| {
                        f64::from(beta[i]) * (f64::from(v[i * value_dim + c]) - read(&s, k, c))
                    })
                    .collect();
                for d in 0..key_dim {
                    for c in 0..value_dim {
                        s[d * value_dim + c] += f64::from(k[d]) * u[c];
                    }
                }
                let scale = 1.0 / (key_dim as f64).sqrt();
                exact.extend((0..value_dim).map(|c| read(&s, q, c) * scale));
            }
            exact.extend(s);
            for (got, exact) in whole.iter().zip(exact) {
                assert!((f64::from(*got) - exact).abs() < 2e-5, "{kernels:?}: {got} {exact}");
            }
        }
    }
}

#[test]
fn the_fused_projections_have_the_bits_of_two_products_and_an_activation() {
    let pool = Pool::new(2).unwrap();
    for kernels in Kernels::all() {
        for (k, n) in [(64, 33), (576, 100), (801, 16)] {
            let (gate, up) = (packed(&noise(n * k, 3), k), packed(&noise(n * k, 4), k));
            for tokens in [1, 2, 7, 30] {
                let x = noise(tokens * k, 9);
                let product = |weight: &Panels| {
                    let mut out = vec![f32::NAN; tokens * n];
                    pool.install(|| gemm(kernels, &x, weight, &mut out, true));
                    out
                };
                let pairs = product(&gate).into_iter().zip(product(&up));
                let expected: Vec<u32> =
                    pairs.map(|(g, u)| round_bf16(silu(g) * u).to_bits()).collect();
                let mut fused = vec![f32::NAN; tokens * n];
                let up = Some(&up);
                let job = Product { weight: &gate, up, out: &mut fused, round: true };
                pool.install(|| products(kernels, &x, [job]));
                let found: Vec<u32> = fused.iter().map(|v| v.to_bits()).collect();
                assert_eq!(found, expected, "{kernels:?} k={k} n={n} tokens={tokens}");
            }
        }
    }
}
