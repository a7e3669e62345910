//! Whether the ratio itself changed during the run.

use super::{finite_or_null, signed_rank_bounds, special::normal_cdf};
use serde::Serialize;

/// A monotone trend of a series in run order.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Drift {
    /// Change from the first datum to the last along the Theil–Sen line.
    pub total: f64,
    /// Two-sided p-value of Mann–Kendall's trend test.
    pub p: f64,
    /// Half width of the confidence interval that the series would have without its trend.
    #[serde(serialize_with = "finite_or_null")]
    pub noise: f64,
}

impl Drift {
    /// p-value below which a trend is not chance.
    pub const P: f64 = 0.001;

    /// Whether the series drifts beyond its noise: the trend is certain and its total exceeds
    /// [`Drift::noise`], so that no single ratio describes the run.
    pub fn beyond_noise(&self) -> bool {
        self.p < Drift::P && self.noise.is_finite() && self.total.abs() > self.noise
    }
}

/// Mann–Kendall's test (normal approximation with continuity correction) and the Theil–Sen slope
/// of `series` over its index, with the noise of what is left at `alpha` a side. No trend for
/// fewer than ten data.
pub fn drift(series: &[f64], alpha: f64) -> Drift {
    let n = series.len();
    if n < 10 {
        return Drift { total: 0.0, p: 1.0, noise: f64::INFINITY };
    }
    let mut slopes = Vec::with_capacity(n * (n - 1) / 2);
    let mut score = 0.0;
    for (i, x) in series.iter().enumerate() {
        for (step, y) in series[i + 1..].iter().enumerate() {
            let difference = y - x;
            slopes.push(difference / (step + 1) as f64);
            score += if difference > 0.0 { 1.0 } else { -f64::from(difference < 0.0) };
        }
    }
    slopes.sort_unstable_by(f64::total_cmp);
    let middle = slopes.len() / 2;
    let slope = if slopes.len() % 2 == 1 {
        slopes[middle]
    } else {
        0.5 * (slopes[middle - 1] + slopes[middle])
    };
    let count = n as f64;
    let deviation = (count * (count - 1.0) * (2.0 * count + 5.0) / 18.0).sqrt();
    let z = (score.abs() - 1.0).max(0.0) / deviation;
    let rest: Vec<f64> = series.iter().enumerate().map(|(i, x)| x - slope * i as f64).collect();
    let (lower, upper) = signed_rank_bounds(&rest, alpha);
    Drift {
        total: slope * (count - 1.0),
        p: (2.0 * normal_cdf(-z)).min(1.0),
        noise: 0.5 * (upper - lower),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_planted_trend_is_found() {
        let y = [
            0.0201, 0.0449, 0.0263, 0.0055, 0.0373, 0.0204, 0.083, 0.157, 0.0754, 0.079, 0.1445,
            0.1478, 0.1453, 0.1035, 0.1585, 0.2048, 0.1128, 0.1671, 0.1049, 0.1455,
        ];
        let found = drift(&y, 0.005);
        // scipy: theilslopes; Mann–Kendall from S = 110, var = 950, by hand.
        assert!((found.total - 19.0 * 0.007284444444444444).abs() < 1e-12);
        let z: f64 = 109.0 / 950f64.sqrt();
        assert!((found.p - 2.0 * normal_cdf(-z)).abs() < 1e-15);
        assert!(found.p < Drift::P && found.beyond_noise());
        // The noise is that of the values without the planted slope of 0.01, here 0.0072.
        assert!((0.015..0.045).contains(&found.noise), "{}", found.noise);
    }

    #[test]
    fn noise_and_short_series_do_not_drift() {
        let zigzag: Vec<f64> = (0..40).map(|i| f64::from(i % 2)).collect();
        assert!(drift(&zigzag, 0.005).p > 0.5);
        assert_eq!(drift(&[1.0, 2.0, 3.0], 0.005).p, 1.0);
    }
}
