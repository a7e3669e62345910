//! Which device holds and computes what: a pure function of descriptor and devices.

mod device;
mod plan;

pub use device::Device;
pub use plan::Placement;
