//! The Hodges–Lehmann estimate and the signed-rank confidence bounds.

use super::special::normal_quantile;

/// Up to this many data the null distribution of the signed-rank sum is computed exactly; beyond
/// it a normal approximation with continuity correction agrees to well under one rank in 100.
const EXACT_LIMIT: usize = 100;

/// The median of all pairwise means (Walsh averages, i ≤ j); `None` without data.
///
/// The centre of symmetry of a symmetric distribution, 95.5% as efficient as the mean under
/// normal noise and unmoved by a few wild quads.
pub fn hodges_lehmann(data: &[f64]) -> Option<f64> {
    let walsh = walsh_averages(data);
    let n = walsh.len();
    match n {
        0 => None,
        _ if n % 2 == 1 => Some(walsh[n / 2]),
        _ => Some(0.5 * (walsh[n / 2 - 1] + walsh[n / 2])),
    }
}

/// Lower and upper confidence bound of the centre, each missed with probability at most `alpha`.
///
/// Inverts the signed-rank test: with c the largest value for which P(W ≤ c) ≤ `alpha` under the
/// null hypothesis, the bounds are the (c+1)-th smallest and (c+1)-th largest Walsh average. Both
/// are infinite where even W = 0 is likelier than `alpha` (too few data).
pub fn signed_rank_bounds(data: &[f64], alpha: f64) -> (f64, f64) {
    let walsh = walsh_averages(data);
    match critical_value(data.len(), alpha) {
        Some(c) if c < walsh.len() => (walsh[c], walsh[walsh.len() - 1 - c]),
        _ => (f64::NEG_INFINITY, f64::INFINITY),
    }
}

fn walsh_averages(data: &[f64]) -> Vec<f64> {
    let mut walsh = Vec::with_capacity(data.len() * (data.len() + 1) / 2);
    for (i, x) in data.iter().enumerate() {
        walsh.extend(data[i..].iter().map(|y| 0.5 * (x + y)));
    }
    walsh.sort_unstable_by(f64::total_cmp);
    walsh
}

/// The largest c with P(W ≤ c) ≤ `alpha`, W the signed-rank sum of `n` data, or `None`.
fn critical_value(n: usize, alpha: f64) -> Option<usize> {
    if n > EXACT_LIMIT {
        let n = n as f64;
        let mean = n * (n + 1.0) / 4.0;
        let deviation = (n * (n + 1.0) * (2.0 * n + 1.0) / 24.0).sqrt();
        let c = (mean - 0.5 + normal_quantile(alpha) * deviation).floor();
        return (c >= 0.0).then_some(c as usize);
    }
    let mut cumulative = 0.0;
    let mut critical = None;
    for (w, p) in rank_sum_distribution(n).into_iter().enumerate() {
        cumulative += p;
        if cumulative > alpha {
            break;
        }
        critical = Some(w);
    }
    critical
}

/// P(W = w) for every w up to half its range: each rank 1..=n is in the sum with probability ½.
fn rank_sum_distribution(n: usize) -> Vec<f64> {
    let half = n * (n + 1) / 4;
    let mut p = vec![0.0; half + 1];
    p[0] = 1.0;
    for rank in 1..=n {
        for w in (0..=half).rev() {
            let with = if w >= rank { p[w - rank] } else { 0.0 };
            p[w] = 0.5 * (p[w] + with);
        }
    }
    p
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Twenty values drawn once from a normal distribution and rounded.
    const X: [f64; 20] = [
        0.0201, 0.0349, 0.0063, -0.0245, -0.0027, -0.0296, 0.023, 0.087, -0.0046, -0.011, 0.0445,
        0.0378, 0.0253, -0.0265, 0.0185, 0.0548, -0.0472, -0.0029, -0.0751, -0.0445,
    ];

    #[test]
    fn critical_values_match_an_independent_enumeration() {
        // NumPy: convolution of the full distribution; α = 0.5%/3, 0.5%, 2.5%.
        let expected = [
            (5, [None, None, None]),
            (8, [None, Some(0), Some(3)]),
            (10, [Some(0), Some(3), Some(8)]),
            (12, [Some(3), Some(7), Some(13)]),
            (16, [Some(13), Some(19), Some(29)]),
            (20, [Some(29), Some(37), Some(52)]),
            (40, [Some(195), Some(220), Some(264)]),
            (80, [Some(1014), Some(1086), Some(1211)]),
            (100, [Some(1678), Some(1779), Some(1955)]),
        ];
        for (n, row) in expected {
            for (alpha, c) in [0.005 / 3.0, 0.005, 0.025].into_iter().zip(row) {
                assert_eq!(critical_value(n, alpha), c, "n = {n}, alpha = {alpha}");
            }
        }
    }

    #[test]
    fn small_distributions_by_hand() {
        // n = 3: the 8 subsets of {1, 2, 3} have the sums 0 1 2 3 3 4 5 6.
        assert_eq!(rank_sum_distribution(3), [0.125, 0.125, 0.125, 0.25]);
    }

    #[test]
    fn the_normal_approximation_continues_the_exact_values() {
        let n = EXACT_LIMIT as f64;
        let exact = critical_value(EXACT_LIMIT, 0.005).unwrap() as f64;
        let deviation = (n * (n + 1.0) * (2.0 * n + 1.0) / 24.0).sqrt();
        let approximate = n * (n + 1.0) / 4.0 - 0.5 + normal_quantile(0.005) * deviation;
        assert!((exact - approximate).abs() < 10.0, "{exact} against {approximate}");
        assert!(critical_value(EXACT_LIMIT + 1, 0.005).unwrap() > exact as usize);
    }

    #[test]
    fn estimate_and_bounds_of_a_known_sample() {
        // NumPy, from the sorted Walsh averages.
        let close = |found: f64, expected: f64| {
            assert!((found - expected).abs() < 1e-12, "expected {expected}, found {found}");
        };
        close(hodges_lehmann(&X).unwrap(), 0.00485);
        for (alpha, lower, upper) in
            [(0.005, -0.0236, 0.0301), (0.005 / 3.0, -0.0259, 0.03375), (0.025, -0.01455, 0.02205)]
        {
            let bounds = signed_rank_bounds(&X, alpha);
            close(bounds.0, lower);
            close(bounds.1, upper);
        }
    }

    #[test]
    fn a_shift_moves_everything_by_itself() {
        let moved: Vec<f64> = X.iter().map(|x| x + 1.0).collect();
        let (lower, upper) = signed_rank_bounds(&X, 0.005);
        let (lower_moved, upper_moved) = signed_rank_bounds(&moved, 0.005);
        assert!((lower_moved - lower - 1.0).abs() < 1e-12);
        assert!((upper_moved - upper - 1.0).abs() < 1e-12);
    }

    #[test]
    fn too_few_data_bound_nothing() {
        assert_eq!(hodges_lehmann(&[]), None);
        assert_eq!(signed_rank_bounds(&X[..5], 0.005), (f64::NEG_INFINITY, f64::INFINITY));
    }
}
