//! `region_invariance`: a region gives the same bits however its rows are cut into steps.

mod axes;
mod builder;
mod execute;
mod experts;
mod gate;
mod latent;
mod material;
mod ranks;
mod schedule;
mod subject;
#[cfg(test)]
mod tests;

pub(super) use experts::route;
pub(super) use gate::RegionInvariance;
