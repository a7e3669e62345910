//! Paired statistics: what a run of A B B A quads says about a ratio.
//!
//! Everything here is a pure function of numbers. One datum is the log ratio of a quad
//! ([`Quad::log_ratio`]); [`estimate`] turns data into a Hodges–Lehmann estimate with a one-sided
//! signed-rank bound on each side; [`error_rates`] measures how often the whole procedure errs on
//! a recorded A/A series. `docs/statistics.md` gives the formulas with their sources.

mod drift;
mod estimate;
mod proportion;
mod quad;
mod resample;
mod signed_rank;
mod special;
mod structure;

pub use drift::{Drift, drift};
pub use estimate::{Datum, Estimate, Launched, estimate};
pub use proportion::{Proportion, clopper_pearson};
pub use quad::{MAX_DROPPED_SHARE, MAX_READING_SPREAD, Quad, reading_spread};
pub use resample::{
    ErrorRates, LookPlan, MIN_SERIES_QUADS, Outcomes, SeriesTooShort, Side, error_rates, judge,
};
pub use signed_rank::{hodges_lehmann, signed_rank_bounds};
pub use structure::{LaunchEffect, lag_one_autocorrelation, launch_effect};

/// Error probability of each one-sided bound over all looks together.
pub const ALPHA_PER_SIDE: f64 = 0.005;

/// Power at which [`Estimate::smallest_detectable`] is stated.
pub const POWER: f64 = 0.95;

/// Below this p-value launches differ by more than their quads explain.
pub const LAUNCH_EFFECT_P: f64 = 0.001;

/// Fewest launches that can serve as data.
pub const MIN_LAUNCHES: usize = 12;

/// JSON has no infinity: an absent bound is `null`.
fn finite_or_null<S: serde::Serializer>(value: &f64, s: S) -> Result<S::Ok, S::Error> {
    use serde::Serialize as _;
    value.is_finite().then_some(*value).serialize(s)
}

/// A standard normal value (Box–Muller), for simulations in tests.
#[cfg(test)]
fn normal(rng: &mut crate::units::SplitMix64) -> f64 {
    let (u, v) = (1.0 - rng.next_unit(), rng.next_unit());
    (-2.0 * u.ln()).sqrt() * (std::f64::consts::TAU * v).cos()
}
