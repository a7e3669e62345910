//! From the quads of a run to an estimate with bounds.

use super::structure::{is_autocorrelated, merge_neighbours, without_load_order};
use super::{
    Drift, LAUNCH_EFFECT_P, LaunchEffect, MIN_LAUNCHES, POWER, drift, finite_or_null,
    hodges_lehmann, lag_one_autocorrelation, launch_effect, signed_rank_bounds,
    special::normal_quantile,
};
use serde::Serialize;

/// A datum and the process launch it was measured in.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Launched {
    pub launch: u32,
    pub log_ratio: f64,
}

/// Whether a launch loads the arms in reverse: every second one does, because what is loaded first may
/// find better memory.
pub fn loads_in_reverse(launch: u32) -> bool {
    launch % 2 == 1
}

/// What counted as one datum.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Datum {
    /// Every quad on its own.
    Quad,
    /// Means of this many neighbouring quads, because neighbours resemble each other.
    Neighbours(usize),
    /// Launch means, because launches differ by more than their quads explain.
    Launch,
}

impl std::fmt::Display for Datum {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Datum::Quad => f.write_str("quads"),
            Datum::Neighbours(n) => write!(f, "means of {n} neighbouring quads"),
            Datum::Launch => f.write_str("launch means"),
        }
    }
}

/// A log ratio with its bounds and the checks behind them.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Estimate {
    /// Quads that went in.
    pub quads: usize,
    pub datum: Datum,
    /// Data the bounds rest on.
    pub data: usize,
    /// Hodges–Lehmann estimate of ln(B/A).
    pub log_ratio: f64,
    /// Bounds of ln(B/A), each missed with probability at most `alpha`; ±∞ with too few data.
    #[serde(serialize_with = "finite_or_null")]
    pub lower: f64,
    #[serde(serialize_with = "finite_or_null")]
    pub upper: f64,
    pub alpha: f64,
    /// `None` where there was nothing to compare (one launch, or one quad per launch).
    pub launch_effect: Option<LaunchEffect>,
    /// Lag-one autocorrelation of the quads in run order.
    pub autocorrelation: f64,
    /// Trend of the quads in run order.
    pub drift: Drift,
}

impl Estimate {
    /// Half the width of the interval, in log units.
    pub fn half_width(&self) -> f64 {
        0.5 * (self.upper - self.lower)
    }

    /// The smallest |ln ratio − ln threshold| that this many data of this spread decide with
    /// probability [`POWER`].
    ///
    /// The half width is z(α) standard errors; the bound clears the threshold with probability
    /// `POWER` when the truth lies z(POWER) standard errors further.
    pub fn smallest_detectable(&self) -> f64 {
        let z_alpha = -normal_quantile(self.alpha);
        self.half_width() * (1.0 + normal_quantile(POWER) / z_alpha)
    }

    /// Whether the ratio changed during the run by more than its noise.
    pub fn drifted(&self) -> bool {
        self.drift.beyond_noise()
    }
}

/// Estimates the centre of `data` (in run order) with one-sided bounds at `alpha` each.
///
/// 1. If launches differ (one-way analysis, p < [`LAUNCH_EFFECT_P`]) their means become the data,
///    without what the order of loading explains; with fewer than [`MIN_LAUNCHES`] of them the bounds
///    are infinite.
/// 2. While neighbouring data are autocorrelated, neighbours are merged.
/// 3. Hodges–Lehmann estimate and signed-rank bounds of what remains.
///
/// A drift is looked for in the data of step 1.
///
/// `None` without data.
pub fn estimate(data: &[Launched], alpha: f64) -> Option<Estimate> {
    let quads: Vec<f64> = data.iter().map(|d| d.log_ratio).collect();
    let launches: Vec<&[Launched]> = data.chunk_by(|a, b| a.launch == b.launch).collect();
    let values: Vec<Vec<f64>> =
        launches.iter().map(|l| l.iter().map(|d| d.log_ratio).collect()).collect();
    let slices: Vec<&[f64]> = values.iter().map(Vec::as_slice).collect();
    let effect = launch_effect(&slices);

    let by_launch = effect.is_some_and(|e| e.p < LAUNCH_EFFECT_P);
    let mut series = if by_launch {
        let means: Vec<f64> =
            values.iter().map(|v| v.iter().sum::<f64>() / v.len() as f64).collect();
        let reversed = launches.iter().map(|l| loads_in_reverse(l[0].launch)).collect::<Vec<_>>();
        without_load_order(&means, &reversed)
    } else {
        quads.clone()
    };
    // Within launches that differ quads rise and fall together, which a test for trends takes for one.
    let drift = drift(&series, alpha);
    let mut merged = 1;
    while series.len() >= 4 && is_autocorrelated(&series) {
        series = merge_neighbours(&series);
        merged *= 2;
    }
    let datum = match (by_launch, merged) {
        (true, _) => Datum::Launch,
        (false, 1) => Datum::Quad,
        (false, m) => Datum::Neighbours(m),
    };
    let too_few_launches = by_launch && launches.len() < MIN_LAUNCHES;
    let (lower, upper) = if too_few_launches {
        (f64::NEG_INFINITY, f64::INFINITY)
    } else {
        signed_rank_bounds(&series, alpha)
    };
    Some(Estimate {
        quads: quads.len(),
        datum,
        data: series.len(),
        log_ratio: hodges_lehmann(&series)?,
        lower,
        upper,
        alpha,
        launch_effect: effect,
        autocorrelation: lag_one_autocorrelation(&quads),
        drift,
    })
}

#[cfg(test)]
mod tests {
    use super::super::normal;
    use super::*;
    use crate::units::SplitMix64;

    /// Normal noise with a common shift per launch.
    fn series(rng: &mut SplitMix64, launches: u32, per: usize, shift: f64) -> Vec<Launched> {
        (0..launches)
            .flat_map(|launch| {
                let offset = shift * normal(rng);
                (0..per)
                    .map(|_| Launched { launch, log_ratio: offset + 0.01 * normal(rng) })
                    .collect::<Vec<_>>()
            })
            .collect()
    }

    #[test]
    fn bounds_cover_the_truth_as_often_as_they_say() {
        let mut rng = SplitMix64::new(11);
        let mut missed = [0; 2];
        let runs = 3000;
        for _ in 0..runs {
            let e = estimate(&series(&mut rng, 4, 5, 0.0), 0.025).unwrap();
            missed[0] += u32::from(e.lower > 0.0);
            missed[1] += u32::from(e.upper < 0.0);
        }
        for m in missed {
            let share = f64::from(m) / f64::from(runs);
            assert!((0.012..0.034).contains(&share), "nominal 2.5%, found {share}");
        }
    }

    #[test]
    fn launches_that_differ_are_no_drift() {
        let mut rng = SplitMix64::new(3);
        let runs = 400;
        let drifted = (0..runs)
            .filter(|_| estimate(&series(&mut rng, 12, 8, 0.01), 0.005).unwrap().drifted())
            .count();
        // Quads as the data: a tenth of the runs and more.
        assert!(drifted <= 4, "{drifted} of {runs} runs without a drift drifted");
        let mut rising = series(&mut rng, 12, 8, 0.01);
        for datum in &mut rising {
            datum.log_ratio += 0.01 * f64::from(datum.launch);
        }
        assert!(estimate(&rising, 0.005).unwrap().drifted());
    }

    #[test]
    fn launches_that_differ_become_the_data() {
        let mut rng = SplitMix64::new(5);
        let few = estimate(&series(&mut rng, 4, 5, 0.05), 0.005).unwrap();
        assert_eq!((few.datum, few.data), (Datum::Launch, 4));
        assert!(few.lower == f64::NEG_INFINITY && few.upper == f64::INFINITY);
        let enough = estimate(&series(&mut rng, 16, 5, 0.05), 0.005).unwrap();
        assert_eq!((enough.datum, enough.data), (Datum::Launch, 16));
        assert!(enough.lower.is_finite());
    }

    #[test]
    fn launch_means_keep_the_error_rate_where_quads_would_not() {
        let mut rng = SplitMix64::new(17);
        let (mut by_rule, mut by_quads) = (0, 0);
        for _ in 0..600 {
            let data = series(&mut rng, 16, 5, 0.05);
            let e = estimate(&data, 0.025).unwrap();
            by_rule += u32::from(e.lower > 0.0);
            let quads: Vec<f64> = data.iter().map(|d| d.log_ratio).collect();
            by_quads += u32::from(signed_rank_bounds(&quads, 0.025).0 > 0.0);
        }
        assert!(by_rule < 30, "expected about 15 of 600, found {by_rule}");
        assert!(by_quads > 90, "the planted launch effect is too small: {by_quads}");
    }

    #[test]
    fn an_effect_of_the_load_order_costs_no_precision() {
        let width = |order: f64| {
            let mut rng = SplitMix64::new(29);
            let mut data = series(&mut rng, 16, 5, 0.02);
            for d in &mut data {
                d.log_ratio += if loads_in_reverse(d.launch) { -order } else { order };
            }
            let e = estimate(&data, 0.005).unwrap();
            assert_eq!(e.datum, Datum::Launch);
            (e.log_ratio, e.half_width())
        };
        let (plain, planted) = (width(0.0), width(0.1));
        assert!((plain.0 - planted.0).abs() < 1e-12 && (plain.1 - planted.1).abs() < 1e-12);
    }

    #[test]
    fn launch_means_keep_the_error_rate_beside_an_effect_of_the_load_order() {
        let mut rng = SplitMix64::new(31);
        let mut missed = 0;
        for _ in 0..2000 {
            let mut data = series(&mut rng, 16, 5, 0.05);
            for d in &mut data {
                d.log_ratio += if loads_in_reverse(d.launch) { -0.04 } else { 0.04 };
            }
            let e = estimate(&data, 0.025).unwrap();
            missed += u32::from(e.lower > 0.0) + u32::from(e.upper < 0.0);
        }
        // Nominal 5% of both sides; the order that is estimated with it takes one of 16 degrees of freedom.
        assert!((60..150).contains(&missed), "expected about 110 of 2000, found {missed}");
    }

    #[test]
    fn resembling_neighbours_are_merged() {
        let mut rng = SplitMix64::new(3);
        let mut level = 0.0;
        let data: Vec<Launched> = (0..80)
            .map(|_| {
                level = 0.7 * level + 0.01 * normal(&mut rng);
                Launched { launch: 0, log_ratio: level }
            })
            .collect();
        let e = estimate(&data, 0.005).unwrap();
        assert!(matches!(e.datum, Datum::Neighbours(m) if m >= 2), "{e:?}");
    }

    #[test]
    fn the_smallest_detectable_effect_is_detected_at_its_power() {
        let mut rng = SplitMix64::new(23);
        let mut total = 0.0;
        for _ in 0..400 {
            total += estimate(&series(&mut rng, 8, 5, 0.0), 0.005).unwrap().smallest_detectable();
        }
        let effect = total / 400.0;
        let found = (0..400)
            .filter(|_| {
                let mut data = series(&mut rng, 8, 5, 0.0);
                data.iter_mut().for_each(|d| d.log_ratio += effect);
                estimate(&data, 0.005).unwrap().lower > 0.0
            })
            .count();
        assert!((364..=396).contains(&found), "expected about 380 of 400, found {found}");
    }
}
