//! Paired statistics: what a run of A B B A quads says about a ratio.
//!
//! Everything here is a pure function of numbers. One datum is the log ratio of a quad
//! ([`Quad::log_ratio`]); [`estimate()`] turns data into a Hodges–Lehmann estimate with a one-sided
//! signed-rank bound on each side; [`error_rates`] measures how often the whole procedure errs on
//! a recorded A/A series. `docs/statistics.md` gives the formulas with their sources.

mod drift;
mod estimate;
mod proportion;
mod quad;
mod resample;
mod rules;
mod signed_rank;
mod special;
mod structure;

pub use drift::{Drift, drift};
pub use estimate::{Datum, Estimate, Launched, estimate, loads_in_reverse};
pub use proportion::{Proportion, clopper_pearson};
pub use quad::{MAX_DROPPED_SHARE, MAX_READING_SPREAD, Quad, reading_spread};
pub use resample::{
    ErrorRates, LookPlan, MIN_SERIES_QUADS, Outcomes, SeriesTooShort, Side, error_rates, judge,
};
pub use rules::{ALPHA_PER_SIDE, LAUNCH_EFFECT_P, MIN_LAUNCHES, POWER};
pub use signed_rank::{hodges_lehmann, signed_rank_bounds};
pub use structure::{LaunchEffect, Scatter, lag_one_autocorrelation, launch_effect, scatter};

use rules::finite_or_null;
#[cfg(test)]
use rules::normal;
