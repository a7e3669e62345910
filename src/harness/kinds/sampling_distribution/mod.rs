//! `sampling_distribution`: many draws of the sampler against an independent distribution.

mod expected;
mod gate;
mod judge;
#[cfg(test)]
mod tests;

pub(super) use gate::SamplingDistribution;
