//! How often the procedure errs: pseudo-runs block-resampled out of a recorded A/A series.

use super::{
    ALPHA_PER_SIDE, Launched, Proportion, clopper_pearson, estimate, hodges_lehmann,
    loads_in_reverse,
};
use crate::units::SplitMix64;
use serde::{Deserialize, Serialize};

/// Fewest quads of a series that error rates may be resampled from.
pub const MIN_SERIES_QUADS: usize = 400;

/// When a run looks at its data, and how quads are spread over process launches.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LookPlan {
    /// Quads at each look, rising.
    pub quads: Vec<usize>,
    /// Quads per process launch.
    pub quads_per_launch: usize,
}

impl LookPlan {
    /// The error probability of one bound at one look.
    pub fn alpha_per_look(&self) -> f64 {
        ALPHA_PER_SIDE / self.quads.len() as f64
    }
}

/// What one threshold says about an interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Side {
    /// The whole interval lies at or above the threshold.
    Above,
    /// The whole interval lies below it.
    Below,
    /// The interval contains it.
    Open,
}

/// Compares the interval `[lower, upper]` with a threshold; NaN leaves it open.
pub fn judge(lower: f64, upper: f64, threshold: f64) -> Side {
    if lower >= threshold {
        Side::Above
    } else if upper < threshold {
        Side::Below
    } else {
        Side::Open
    }
}

/// What pseudo-runs came to.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Outcomes {
    pub admitted: Proportion,
    pub declined: Proportion,
    pub inconclusive: Proportion,
}

/// Error rates of the procedure on this device.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct ErrorRates {
    pub series_quads: usize,
    pub pseudo_runs: u64,
    pub seed: u64,
    /// The true ratio exactly at the threshold: `admitted` are false admits, `declined` false
    /// declines. Intervals are exact, 99%.
    pub at_threshold: Outcomes,
    /// A true slowdown of this share below the threshold …
    pub slowdown: f64,
    /// … `inconclusive` counting as missed.
    pub slowed: Outcomes,
}

/// The series cannot carry error rates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("error rates need an A/A series of at least {MIN_SERIES_QUADS} quads, this one has {0}")]
pub struct SeriesTooShort(pub usize);

/// Error rates from `pseudo_runs` runs of `plan` resampled out of `series` (an A/A series in run
/// order).
///
/// The series is centred on its own Hodges–Lehmann estimate, which is the true ratio of the
/// resampled world. A pseudo-launch is a stretch of neighbouring quads of one recorded launch that
/// loaded the arms in the order which the pseudo-launch would, so launch effects, autocorrelation and
/// what the order of loading does are kept. `slowdown` (0.02: 2%) is injected into a second
/// set of pseudo-runs.
///
/// # Errors
/// [`SeriesTooShort`] below [`MIN_SERIES_QUADS`] quads.
pub fn error_rates(
    series: &[Launched],
    plan: &LookPlan,
    pseudo_runs: u64,
    slowdown: f64,
    seed: u64,
) -> Result<ErrorRates, SeriesTooShort> {
    if series.len() < MIN_SERIES_QUADS {
        return Err(SeriesTooShort(series.len()));
    }
    let data: Vec<f64> = series.iter().map(|d| d.log_ratio).collect();
    let centre = hodges_lehmann(&data).expect("the series has data");
    let mut launches: [Vec<Vec<f64>>; 2] = [Vec::new(), Vec::new()];
    for launch in series.chunk_by(|a, b| a.launch == b.launch) {
        launches[usize::from(loads_in_reverse(launch[0].launch))]
            .push(launch.iter().map(|d| d.log_ratio - centre).collect());
    }
    for kind in [0, 1] {
        if launches[kind].is_empty() {
            launches[kind] = launches[1 - kind].clone();
        }
    }
    let mut rng = SplitMix64::new(seed);
    let mut run_set = |shift: f64| outcomes(&launches, plan, pseudo_runs, shift, &mut rng);
    Ok(ErrorRates {
        series_quads: series.len(),
        pseudo_runs,
        seed,
        at_threshold: run_set(0.0),
        slowdown,
        slowed: run_set((-slowdown).ln_1p()),
    })
}

fn outcomes(
    launches: &[Vec<Vec<f64>>; 2],
    plan: &LookPlan,
    pseudo_runs: u64,
    shift: f64,
    rng: &mut SplitMix64,
) -> Outcomes {
    let mut counts = [0u64; 3];
    for _ in 0..pseudo_runs {
        let side = pseudo_run(launches, plan, shift, rng);
        counts[side as usize] += 1;
    }
    let share = |side: Side| clopper_pearson(counts[side as usize], pseudo_runs, 0.99);
    Outcomes {
        admitted: share(Side::Above),
        declined: share(Side::Below),
        inconclusive: share(Side::Open),
    }
}

fn pseudo_run(
    launches: &[Vec<Vec<f64>>; 2],
    plan: &LookPlan,
    shift: f64,
    rng: &mut SplitMix64,
) -> Side {
    let mut data: Vec<Launched> = Vec::new();
    let mut launch = 0;
    for &look in &plan.quads {
        while data.len() < look {
            let launches = &launches[usize::from(loads_in_reverse(launch))];
            let block = &launches[below(rng, launches.len())];
            let take = plan.quads_per_launch.min(look - data.len());
            let start = below(rng, block.len().saturating_sub(take) + 1);
            // A recorded launch shorter than a pseudo-launch contributes what it has.
            let stretch = &block[start..(start + take).min(block.len())];
            data.extend(stretch.iter().map(|x| Launched { launch, log_ratio: x + shift }));
            launch += 1;
        }
        let found = estimate(&data, plan.alpha_per_look()).expect("a look has data");
        match judge(found.lower, found.upper, 0.0) {
            Side::Open => {}
            // A look at a drifting ratio decides nothing; at the last one the run is invalid.
            _ if found.drifted() => {}
            decided => return decided,
        }
    }
    Side::Open
}

/// Uniform below `n` (multiply-shift; the bias of n·2⁻⁶⁴ is of no concern here).
fn below(rng: &mut SplitMix64, n: usize) -> usize {
    ((u128::from(rng.next_word()) * n as u128) >> 64) as usize
}

#[cfg(test)]
mod tests {
    use super::super::normal;
    use super::*;

    fn plan() -> LookPlan {
        LookPlan { quads: vec![20, 40, 80], quads_per_launch: 5 }
    }

    /// 400 quads in 80 launches with noise of 1% and an offset of the whole series.
    fn series(launch_sd: f64, offset: f64) -> Vec<Launched> {
        let mut rng = SplitMix64::new(99);
        (0..80)
            .flat_map(|launch| {
                let level = offset + launch_sd * normal(&mut rng);
                (0..5)
                    .map(|_| Launched { launch, log_ratio: level + 0.01 * normal(&mut rng) })
                    .collect::<Vec<_>>()
            })
            .collect()
    }

    #[test]
    fn error_rates_of_a_clean_series_are_nominal() {
        let rates = error_rates(&series(0.0, 0.3), &plan(), 1000, 0.02, 1).unwrap();
        // Nominal at most 0.5% a side; the offset of the series is no error.
        assert!(rates.at_threshold.admitted.lower <= 0.005, "{rates:?}");
        assert!(rates.at_threshold.declined.lower <= 0.005, "{rates:?}");
        assert!(rates.slowed.declined.share() > 0.95, "{rates:?}");
    }

    #[test]
    fn an_effect_of_the_load_order_is_no_error() {
        let mut data = series(0.0, 0.0);
        for d in &mut data {
            d.log_ratio += if loads_in_reverse(d.launch) { -0.03 } else { 0.03 };
        }
        let rates = error_rates(&data, &plan(), 1000, 0.02, 1).unwrap();
        assert!(rates.at_threshold.admitted.lower <= 0.005, "{rates:?}");
        assert!(rates.at_threshold.declined.lower <= 0.005, "{rates:?}");
        assert!(rates.slowed.declined.share() > 0.95, "{rates:?}");
    }

    #[test]
    fn a_broken_alpha_is_noticed() {
        // Planted defect: looks taken at 20 times the error probability.
        let loose = LookPlan { quads: vec![20; 1], quads_per_launch: 5 };
        let data = series(0.0, 0.0);
        let launches: Vec<Vec<f64>> =
            data.chunks(5).map(|l| l.iter().map(|d| d.log_ratio).collect()).collect();
        let mut rng = SplitMix64::new(1);
        let mut admitted = 0;
        for _ in 0..1000 {
            let mut values = Vec::new();
            while values.len() < loose.quads[0] {
                values.extend_from_slice(&launches[below(&mut rng, launches.len())]);
            }
            admitted += u64::from(super::super::signed_rank_bounds(&values, 0.1).0 >= 0.0);
        }
        assert!(!clopper_pearson(admitted, 1000, 0.99).contains(ALPHA_PER_SIDE), "{admitted}");
    }

    #[test]
    fn short_series_are_refused() {
        let data = &series(0.0, 0.0)[..399];
        assert_eq!(error_rates(data, &plan(), 1000, 0.02, 1), Err(SeriesTooShort(399)));
    }

    #[test]
    fn judging_is_three_way_and_nan_stays_open() {
        assert_eq!(judge(1.0, 2.0, 1.0), Side::Above);
        assert_eq!(judge(0.5, 0.9, 1.0), Side::Below);
        assert_eq!(judge(0.5, 1.0, 1.0), Side::Open);
        assert_eq!(judge(f64::NAN, f64::NAN, 1.0), Side::Open);
        assert_eq!(judge(f64::NEG_INFINITY, f64::INFINITY, 1.0), Side::Open);
    }
}
