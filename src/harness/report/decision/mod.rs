//! The page of one decision, from its record alone.

mod arms;
mod checks;
mod data;
mod device;
mod figures;
mod foreign;
mod identity;
mod quality;
mod regions;
mod render;
mod sweep;
mod top;

#[cfg(test)]
mod tests;

pub use render::render_decision;

pub(super) use data::Data;
