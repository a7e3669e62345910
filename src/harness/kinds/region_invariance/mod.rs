//! Regions by themselves: `region_invariance`, the same bits however rows are cut into steps, and
//! `region_reference`, the values that the CPU gives in FP32.

mod axes;
mod builder;
mod execute;
mod experts;
mod gate;
mod latent;
mod material;
mod ranks;
mod reference;
mod rotary;
mod schedule;
mod subject;
#[cfg(test)]
mod tests;

#[cfg(test)]
pub(super) use experts::Route;
pub(super) use experts::route;
pub(super) use gate::RegionInvariance;
pub(super) use reference::RegionReference;
