//! `placement_plan`: what a placement of a descriptor comes to, or why it is refused.

mod gate;
mod request;
#[cfg(test)]
mod tests;

pub(super) use gate::{PlacementPlan, read};
pub(super) use request::Ranks;
