//! Where every layer runs.

use super::Device;
use crate::descriptor::Descriptor;

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
