//! Which device holds and computes what: a pure function of descriptor and request.
//!
//! A model is divided three ways. *Stages* hold consecutive layers (layer split). Inside a stage a
//! *group* of ranks divides every layer: by heads and rows (tensor parallel), by experts (expert
//! parallel). [`Placement::plan`] says which rank holds which rows and columns of which logical
//! weight, where results are added and what ranks exchange, and whether each cut is a subtree of the
//! reduction tree, so that nothing is left to decide when weights are loaded.

mod collective;
mod coverage;
mod cut;
mod device;
mod error;
mod group;
mod plan;
mod request;
mod role_slice;
mod shared_heads;
mod split;
mod stored;
mod term;
#[cfg(test)]
mod tests;

pub use collective::{Collective, CollectiveKind};
pub use cut::{Cut, Tree};
pub use device::Device;
pub use error::PlacementError;
pub use group::RankGroup;
pub use plan::{Held, Placement, PlacementPolicy, Rank};
pub use request::PlacementRequest;
pub use role_slice::RoleSlice;
pub use shared_heads::SharedHeads;
pub use stored::{Form, Stored};
pub use term::AxisSlice;
