//! Structure in a series of quads: launches that differ, neighbours that resemble each other.

use super::special::f_upper_tail;
use serde::Serialize;

/// One-way analysis of variance over launches.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct LaunchEffect {
    pub launches: usize,
    /// F = between-launch mean square / within-launch mean square.
    pub f: f64,
    /// P(F at least this large) if launches do not matter.
    pub p: f64,
}

/// Tests whether launches differ by more than their quads explain.
///
/// `None` with fewer than two launches or no launch of two quads: nothing to compare.
pub fn launch_effect(launches: &[&[f64]]) -> Option<LaunchEffect> {
    let Squares { k, n, between, within, .. } = squares(launches)?;
    let (d1, d2) = ((k - 1) as f64, (n - k) as f64);
    let f = match (between > 0.0, within > 0.0) {
        (false, _) => 0.0,
        (true, false) => f64::INFINITY,
        (true, true) => (between / d1) / (within / d2),
    };
    Some(LaunchEffect { launches: k, f, p: f_upper_tail(f, d1, d2) })
}

/// Standard deviations of a one-way random model: a quad is the mean, plus its launch's part, plus its own.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scatter {
    /// σ: of quads within their launch.
    pub quad: f64,
    /// τ: of launches, beyond what their quads explain; 0 where they differ by less.
    pub launch: f64,
}

/// Estimates how much quads and launches scatter, by the method of moments for launches of unequal size
/// (Searle, Casella, McCulloch, *Variance Components*, 1992, 3.6).
///
/// `None` as for [`launch_effect`].
pub fn scatter(launches: &[&[f64]]) -> Option<Scatter> {
    let Squares { k, n, between, within, square_sizes } = squares(launches)?;
    let (groups, quads) = ((k - 1) as f64, n as f64);
    let quad = within / (quads - k as f64);
    let size = (quads - square_sizes / quads) / groups;
    let launch = ((between / groups - quad) / size).max(0.0);
    Some(Scatter { quad: quad.sqrt(), launch: launch.sqrt() })
}

/// Sums of squares between and within `k` groups of `n` data, and the sum of the squares of their sizes.
struct Squares {
    k: usize,
    n: usize,
    between: f64,
    within: f64,
    square_sizes: f64,
}

fn squares(launches: &[&[f64]]) -> Option<Squares> {
    let groups: Vec<&[f64]> = launches.iter().copied().filter(|g| !g.is_empty()).collect();
    let n: usize = groups.iter().map(|g| g.len()).sum();
    let k = groups.len();
    if k < 2 || n <= k {
        return None;
    }
    let grand = groups.iter().copied().flatten().sum::<f64>() / n as f64;
    let mut between = 0.0;
    let mut within = 0.0;
    for group in &groups {
        let mean = group.iter().sum::<f64>() / group.len() as f64;
        between += group.len() as f64 * (mean - grand).powi(2);
        within += group.iter().map(|x| (x - mean).powi(2)).sum::<f64>();
    }
    let square_sizes = groups.iter().map(|g| (g.len() as f64).powi(2)).sum();
    Some(Squares { k, n, between, within, square_sizes })
}

/// The lag-one autocorrelation r₁ of a series; 0 for fewer than three data or a constant series.
pub fn lag_one_autocorrelation(series: &[f64]) -> f64 {
    if series.len() < 3 {
        return 0.0;
    }
    let mean = series.iter().sum::<f64>() / series.len() as f64;
    let square: f64 = series.iter().map(|x| (x - mean).powi(2)).sum();
    let lagged: f64 = series.windows(2).map(|w| (w[0] - mean) * (w[1] - mean)).sum();
    if square > 0.0 { lagged / square } else { 0.0 }
}

/// Whether r₁ is larger than chance explains: above 2.33/√n, one-sided 1%.
pub(crate) fn is_autocorrelated(series: &[f64]) -> bool {
    lag_one_autocorrelation(series) > 2.33 / (series.len() as f64).sqrt()
}

/// Means of neighbouring pairs; an odd last datum joins the last pair.
pub(crate) fn merge_neighbours(series: &[f64]) -> Vec<f64> {
    let mean = |part: &[f64]| part.iter().sum::<f64>() / part.len() as f64;
    let pairs = (series.len() / 2).max(1);
    (0..pairs)
        .map(|i| mean(&series[2 * i..if i + 1 == pairs { series.len() } else { 2 * i + 2 }]))
        .collect()
}

/// Launch means without what the order of loading explains.
///
/// A launch that loads the arms in the order A B favours one of them by some δ, one that loads them
/// B A favours the other by as much (`reversed` says which are). As in a crossover trial, δ is half of the
/// Hodges–Lehmann shift between the two kinds, and is taken out of both. Unchanged where one kind is
/// missing.
pub(crate) fn without_load_order(means: &[f64], reversed: &[bool]) -> Vec<f64> {
    let of =
        |kind: bool| means.iter().zip(reversed).filter(move |(_, r)| **r == kind).map(|m| *m.0);
    let mut shifts: Vec<f64> =
        of(false).flat_map(|forward| of(true).map(move |reverse| forward - reverse)).collect();
    if shifts.is_empty() {
        return means.to_vec();
    }
    shifts.sort_unstable_by(f64::total_cmp);
    let delta = 0.25 * (shifts[(shifts.len() - 1) / 2] + shifts[shifts.len() / 2]);
    means.iter().zip(reversed).map(|(m, r)| if *r { m + delta } else { m - delta }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_order_of_loading_is_taken_out() {
        let reversed = [false, true, false, true];
        let means = without_load_order(&[1.5, 0.5, 1.7, 0.7], &reversed);
        for (found, expected) in means.iter().zip([1.0, 1.0, 1.2, 1.2]) {
            assert!((found - expected).abs() < 1e-12, "{means:?}");
        }
        assert_eq!(without_load_order(&[1.5, 0.5], &[false, false]), [1.5, 0.5]);
    }

    #[test]
    fn parts_of_the_scatter_are_told_apart() {
        let alike = scatter(&GROUPS.each_ref().map(|g| &g[..])).unwrap();
        // By hand: mean squares 0.2938333 between four launches of five and 0.028 within.
        assert!((alike.quad.powi(2) - 0.028).abs() < 1e-9, "{alike:?}");
        assert!((alike.launch.powi(2) - (0.881_5 / 3.0 - 0.028) / 5.0).abs() < 1e-9, "{alike:?}");
        // Launches of one and three quads: sizes 1, 3 give (4 - 10/4)/1 = 1.5 in place of their mean.
        let uneven = scatter(&[&[2.0], &[0.0, 1.0, 2.0]]).unwrap();
        assert!((uneven.quad - 1.0).abs() < 1e-12, "{uneven:?}");
        assert_eq!(uneven.launch, 0.0);
        assert_eq!(scatter(&[&[1.0, 2.0]]), None);
    }

    const GROUPS: [[f64; 5]; 4] = [
        [1.1, 1.3, 0.9, 1.2, 1.0],
        [1.5, 1.4, 1.8, 1.6, 1.7],
        [1.0, 1.2, 1.1, 1.3, 0.8],
        [1.2, 1.0, 1.4, 1.1, 1.3],
    ];

    #[test]
    fn analysis_of_variance_matches_scipy() {
        // scipy 1.17, f_oneway.
        let effect = launch_effect(&GROUPS.each_ref().map(|g| &g[..])).unwrap();
        assert!((effect.f - 10.494047619047615).abs() < 1e-9);
        assert!((effect.p - 0.0004643442445287931).abs() < 1e-12);
        let [g0, g1, g2, g3] = &GROUPS;
        let uneven = launch_effect(&[&g0[..3], g1, &g2[..4], g3]).unwrap();
        assert!((uneven.f - 9.29233511586453).abs() < 1e-9);
        assert!((uneven.p - 0.001508741356384757).abs() < 1e-12);
    }

    #[test]
    fn degenerate_groups() {
        assert_eq!(launch_effect(&[&[1.0, 2.0]]), None);
        assert_eq!(launch_effect(&[&[1.0], &[2.0]]), None);
        assert_eq!(launch_effect(&[&[1.0, 1.0], &[1.0, 1.0]]).unwrap().p, 1.0);
        assert_eq!(launch_effect(&[&[1.0, 1.0], &[2.0, 2.0]]).unwrap().p, 0.0);
    }

    #[test]
    fn autocorrelation_and_merging() {
        let x = [
            0.0201, 0.0349, 0.0063, -0.0245, -0.0027, -0.0296, 0.023, 0.087, -0.0046, -0.011,
            0.0445, 0.0378, 0.0253, -0.0265, 0.0185, 0.0548, -0.0472, -0.0029, -0.0751, -0.0445,
        ];
        // NumPy, from the definition.
        assert!((lag_one_autocorrelation(&x) - 0.15615621901448506).abs() < 1e-12);
        assert!(!is_autocorrelated(&x));
        let wave: Vec<f64> = (0..40).map(|i| (f64::from(i) * 0.3).sin()).collect();
        assert!(is_autocorrelated(&wave));
        assert_eq!(merge_neighbours(&[1.0, 3.0, 5.0, 7.0, 9.0]), [2.0, 7.0]);
        assert_eq!(merge_neighbours(&[1.0, 3.0]), [2.0]);
        assert_eq!(lag_one_autocorrelation(&[2.0; 9]), 0.0);
    }
}
