//! The constants of the procedure, and small things that its parts share.

#[cfg(doc)]
use super::Estimate;

/// Error probability of each one-sided bound over all looks together.
pub const ALPHA_PER_SIDE: f64 = 0.005;

/// Power at which [`Estimate::smallest_detectable`] is stated.
pub const POWER: f64 = 0.95;

/// Below this p-value launches differ by more than their quads explain.
pub const LAUNCH_EFFECT_P: f64 = 0.001;

/// Fewest launches that can serve as data.
pub const MIN_LAUNCHES: usize = 12;

/// JSON has no infinity: an absent bound is `null`.
pub(super) fn finite_or_null<S: serde::Serializer>(value: &f64, s: S) -> Result<S::Ok, S::Error> {
    use serde::Serialize as _;
    value.is_finite().then_some(*value).serialize(s)
}

/// A standard normal value (Box–Muller), for simulations in tests.
#[cfg(test)]
pub(super) fn normal(rng: &mut crate::units::SplitMix64) -> f64 {
    let (u, v) = (1.0 - rng.next_unit(), rng.next_unit());
    (-2.0 * u.ln()).sqrt() * (std::f64::consts::TAU * v).cos()
}
