//! A quad: two arms measured in the order A B B A.

use serde::Serialize;

/// A quad whose bandwidth readings differ by more than this share is dropped and replaced.
pub const MAX_READING_SPREAD: f64 = 0.15;

/// At most this share of the measured quads may be dropped.
pub const MAX_DROPPED_SHARE: f64 = 0.30;

/// One metric of the four samples of a quad, in the order measured.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Quad {
    pub a1: f64,
    pub b1: f64,
    pub b2: f64,
    pub a2: f64,
}

impl Quad {
    /// ln(B / A): the mean of the logarithms of B minus that of A.
    ///
    /// A and B lie symmetrically around the middle of the quad, so a drift of the logarithm that
    /// is linear in time cancels. `None` unless all four values are finite and positive.
    pub fn log_ratio(&self) -> Option<f64> {
        let logs = [self.a1, self.b1, self.b2, self.a2].map(f64::ln);
        let ratio = 0.5 * (logs[1] + logs[2]) - 0.5 * (logs[0] + logs[3]);
        (logs.iter().all(|l| l.is_finite()) && ratio.is_finite()).then_some(ratio)
    }
}

/// How far readings of one quantity lie apart: max / min − 1.
///
/// Infinite when there is no reading or one is not finite and positive, so that a missing reading
/// can never keep a quad.
pub fn reading_spread(readings: &[f64]) -> f64 {
    if readings.is_empty() || readings.iter().any(|r| !r.is_finite() || *r <= 0.0) {
        return f64::INFINITY;
    }
    let max = readings.iter().copied().fold(f64::MIN, f64::max);
    let min = readings.iter().copied().fold(f64::MAX, f64::min);
    max / min - 1.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_drift_linear_in_log_time_cancels() {
        let drift = |i: f64| (0.3 * i).exp();
        let quad = Quad {
            a1: 10.0 * drift(0.0),
            b1: 12.0 * drift(1.0),
            b2: 12.0 * drift(2.0),
            a2: 10.0 * drift(3.0),
        };
        assert!((quad.log_ratio().unwrap() - 1.2f64.ln()).abs() < 1e-12);
        // Measured in the order A B A B the same drift would have been taken for a gain.
        let alternating = 0.5 * ((12.0 * drift(1.0)).ln() + (12.0 * drift(3.0)).ln())
            - 0.5 * ((10.0 * drift(0.0)).ln() + (10.0 * drift(2.0)).ln());
        assert!((alternating - 1.2f64.ln() - 0.3).abs() < 1e-12);
    }

    #[test]
    fn values_that_are_no_speed_give_no_datum() {
        for bad in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            assert_eq!(Quad { a1: 1.0, b1: bad, b2: 1.0, a2: 1.0 }.log_ratio(), None, "{bad}");
        }
    }

    #[test]
    fn spread_of_readings() {
        assert!((reading_spread(&[10.0, 11.5, 10.5]) - 0.15).abs() < 1e-12);
        assert!(reading_spread(&[]).is_infinite());
        assert!(reading_spread(&[10.0, f64::NAN]).is_infinite());
        assert!(reading_spread(&[10.0, 0.0]).is_infinite());
    }
}
