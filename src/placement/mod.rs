//! Which device holds and computes what: a pure function of descriptor and devices.

use crate::descriptor::Descriptor;
use std::fmt;

/// A device by kind and number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Device {
    /// The host processor.
    Cpu,
    /// An NVIDIA GPU by its ordinal.
    Cuda(usize),
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Device::Cpu => f.write_str("cpu"),
            Device::Cuda(ordinal) => write!(f, "cuda:{ordinal}"),
        }
    }
}

/// Where every layer runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placement {
    /// The devices, in rank order.
    pub devices: Vec<Device>,
    /// For every layer an index into `devices`.
    pub layer_devices: Vec<usize>,
}

impl Placement {
    /// The whole model on one device.
    pub fn single(descriptor: &Descriptor, device: Device) -> Placement {
        Placement { devices: vec![device], layer_devices: vec![0; descriptor.layers()] }
    }

    /// The name of the policy that made it.
    pub fn policy(&self) -> &'static str {
        "single_device"
    }
}
