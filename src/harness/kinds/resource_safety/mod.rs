//! `resource_safety`: memory comes back, limits are refusals, failures stay where they happen.

mod checks;
mod device;
mod gate;
mod process;

pub(super) use gate::ResourceSafety;
