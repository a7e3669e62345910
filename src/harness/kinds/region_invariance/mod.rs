//! `region_invariance`: a region gives the same bits however its rows are cut into steps.

mod axes;
mod execute;
mod gate;
mod material;
mod schedule;
mod subject;
#[cfg(test)]
mod tests;

pub(super) use gate::RegionInvariance;
