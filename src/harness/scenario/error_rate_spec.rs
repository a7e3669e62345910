//! The key `error_rates` of a scenario file.

use crate::harness::stats::LookPlan;
use serde::{Deserialize, Serialize};

/// How `assay scenario error-rates` establishes how often the harness errs on a device.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ErrorRateSpec {
    /// Quads of the series that pseudo-runs are resampled out of, at least 400.
    #[schemars(range(min = 400))]
    pub series_quads: usize,
    /// Parts that the series is recorded in, spread over the time that the real runs take.
    #[serde(default = "one_part", skip_serializing_if = "is_one_part")]
    #[schemars(range(min = 1))]
    pub series_parts: u64,
    /// Pseudo-runs of each kind, at least 1000.
    #[schemars(range(min = 1000))]
    pub pseudo_runs: u64,
    /// Real runs of each kind, at least 30.
    #[schemars(range(min = 30))]
    pub real_runs: u64,
    /// Looks of a run.
    pub quads: Vec<usize>,
    /// Launches that the first look is spread over.
    #[schemars(range(min = 1))]
    pub launches: usize,
    /// The injected slowdown, as a share of the speed.
    pub slowdown_ratio: f64,
    /// Most false admits and most false declines, each as a share of pseudo-runs.
    pub at_most: f64,
    /// Most slowdowns that are not declined, as a share.
    pub missed_at_most: f64,
}

fn one_part() -> u64 {
    1
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands over a reference")]
fn is_one_part(parts: &u64) -> bool {
    *parts == 1
}

impl ErrorRateSpec {
    /// When a run looks at its data.
    pub fn looks(&self) -> LookPlan {
        LookPlan {
            quads_per_launch: self.quads.first().copied().unwrap_or(1) / self.launches.max(1),
            quads: self.quads.clone(),
        }
    }
}
