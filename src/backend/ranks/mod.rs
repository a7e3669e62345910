//! Ranks of one process: what they exchange, where they meet, and the model they make together.

mod elements;
mod layout;
mod model;
mod state;
#[cfg(test)]
mod tests;
mod world;

pub use elements::{CollectiveError, Elements, sum};
pub use layout::{GdnSlice, Layout, RankLayout};
pub use model::RankedModel;
pub use world::{Abandoned, Link, Member, World};
