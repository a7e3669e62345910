//! Plan: the trials a set of gate files expands into, each with a stable name.
//!
//! What cannot run here is decided now, with its reason, so that "not run" is never displayed as
//! a pass by any runner.

mod devices;
mod discover;
mod expand;
mod glob;
mod matrix;
mod partition;
#[expect(clippy::module_inception, reason = "the type is the module's idea")]
mod plan;

pub use devices::devices;
pub use discover::{PlanError, discover, project_root, read_gates};
pub use glob::{Pattern, glob_matches};
pub use matrix::{AxisValue, Matrix};
pub use partition::Partition;
pub use plan::{Plan, PlanOptions, PlannedGate, Trial, plan};

pub(super) use expand::base;
