//! Devices and the regions they execute.

mod plan;
mod policy;
mod region;

pub mod cpu;

pub use plan::{Buf, BufferSpec, NormWeight, Op, OpKind, Plan, WeightRef};
pub use policy::{DeviceKind, Policy, PolicyError};
pub use region::Region;
