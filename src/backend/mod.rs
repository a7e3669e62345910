//! Devices and the regions they execute.

mod fusion;
mod model;
mod parts;
mod plan;
mod policy;
mod region;
mod taps;

pub mod cpu;
pub mod cuda;
pub mod ranks;

pub use crate::placement::RankGroup;
pub use fusion::{Fusion, fuse};
pub use model::{
    Binding, CacheKind, CacheSpec, DeviceModel, DeviceProvenance, Draw, Fault, GdnSpec,
    KernelDigest, LiveState, NonFinite, Phase, RegionCost, RegionRun, RowOutput, RowWant, Span,
    State, StateTensor, Step, TruncateError,
};
pub use parts::ExpertSpan;
pub use plan::{Buf, BufferSpec, NormWeight, Op, OpKind, Plan, WeightRef};
pub use policy::{DeviceKind, Policy, PolicyError};
pub use region::Region;
pub use taps::{Tap, Taps};
