//! Exact confidence intervals of a proportion.

use super::special::{bisect, incomplete_beta};
use serde::Serialize;

/// A count out of a number of trials with its exact two-sided interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Proportion {
    pub count: u64,
    pub trials: u64,
    pub lower: f64,
    pub upper: f64,
}

impl Proportion {
    /// count / trials.
    pub fn share(&self) -> f64 {
        self.count as f64 / self.trials as f64
    }

    /// Whether the interval contains `share`.
    pub fn contains(&self, share: f64) -> bool {
        self.lower <= share && share <= self.upper
    }
}

/// The interval of Clopper and Pearson at `confidence` (0.99 for the error rates of the harness).
///
/// # Panics
/// If `count > trials` or there are no trials: a bug of the caller.
pub fn clopper_pearson(count: u64, trials: u64, confidence: f64) -> Proportion {
    assert!(trials > 0 && count <= trials, "{count} of {trials} is no proportion");
    let tail = (1.0 - confidence) / 2.0;
    let (k, n) = (count as f64, trials as f64);
    let lower = if count == 0 {
        0.0
    } else {
        bisect(0.0, 1.0, |p| incomplete_beta(k, n - k + 1.0, p) < tail)
    };
    let upper = if count == trials {
        1.0
    } else {
        bisect(0.0, 1.0, |p| incomplete_beta(k + 1.0, n - k, p) < 1.0 - tail)
    };
    Proportion { count, trials, lower, upper }
}

#[cfg(test)]
mod tests {
    use super::clopper_pearson;

    #[test]
    fn intervals_match_scipy() {
        // scipy 1.17, beta.ppf.
        for (k, n, lower, upper) in [
            (0, 30, 0.0, 0.16189390280673965),
            (3, 1000, 0.00033814452906649344, 0.01093377742040524),
            (10, 1000, 0.0037267829242526823, 0.0212760587536165),
            (500, 1000, 0.45885255330704494, 0.5411474466929551),
            (30, 30, 0.8381060971932603, 1.0),
        ] {
            let found = clopper_pearson(k, n, 0.99);
            assert!((found.lower - lower).abs() < 1e-10, "{k}/{n}: {found:?}");
            assert!((found.upper - upper).abs() < 1e-10, "{k}/{n}: {found:?}");
            assert!(found.contains(found.share()));
        }
    }
}
