//! Numerical policies: named sets of region → implementation bindings.

use crate::placement::Device;
use serde::{Deserialize, Serialize};
use std::fmt;

/// A kind of device.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    Hash,
    PartialOrd,
    Ord,
    Serialize,
    Deserialize,
    schemars::JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum DeviceKind {
    Cpu,
    Cuda,
}

impl DeviceKind {
    /// The first device of the kind.
    pub fn first(self) -> Device {
        match self {
            DeviceKind::Cpu => Device::Cpu,
            DeviceKind::Cuda => Device::Cuda(0),
        }
    }
}

impl fmt::Display for DeviceKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            DeviceKind::Cpu => "cpu",
            DeviceKind::Cuda => "cuda",
        })
    }
}

impl std::str::FromStr for DeviceKind {
    type Err = String;

    fn from_str(text: &str) -> Result<DeviceKind, String> {
        match text {
            "cpu" => Ok(DeviceKind::Cpu),
            "cuda" => Ok(DeviceKind::Cuda),
            _ => Err(format!("unknown kind of device `{text}`; kinds are cpu, cuda")),
        }
    }
}

/// A numerical policy.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    Hash,
    PartialOrd,
    Ord,
    Serialize,
    Deserialize,
    schemars::JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Policy {
    /// FP32 activations, no BF16 rounding: for checking against references.
    F32,
    /// The CPU oracle: BF16 at every rounding boundary, FP32 in a fixed 16-lane order, the same
    /// bits on every instruction set.
    Reference,
    /// Bits of a row depend on its own content and absolute positions only. On the CPU an alias
    /// of `reference`, resolved by [`Policy::resolve`] before planning.
    Invariant,
    /// The fastest kernels within the family's tolerance.
    Fast,
}

impl Policy {
    /// Every policy.
    pub const ALL: [Policy; 4] = [Policy::F32, Policy::Reference, Policy::Invariant, Policy::Fast];

    /// The policies that a device executes under their own name, its default first.
    pub fn available(device: DeviceKind) -> &'static [Policy] {
        match device {
            DeviceKind::Cpu => &[Policy::Fast, Policy::Reference, Policy::F32],
            DeviceKind::Cuda => &[Policy::Fast, Policy::Invariant, Policy::F32],
        }
    }

    /// The policy that executes when `self` is asked for on `device`.
    ///
    /// # Errors
    /// [`PolicyError`] names the policies the device has.
    pub fn resolve(self, device: DeviceKind) -> Result<Policy, PolicyError> {
        let resolved = match (self, device) {
            (Policy::Invariant, DeviceKind::Cpu) => Policy::Reference,
            _ => self,
        };
        if Policy::available(device).contains(&resolved) {
            Ok(resolved)
        } else {
            Err(PolicyError { policy: self, device })
        }
    }

    /// Whether a row's bits on `device` depend on its own content and position alone, however rows
    /// are cut into steps and whatever is computed beside them. `fast` on CUDA lets the vendor's
    /// library choose an algorithm by the number of rows.
    pub fn is_invariant(self, device: DeviceKind) -> bool {
        (self, device) != (Policy::Fast, DeviceKind::Cuda)
    }

    /// In words, why the policy claims no equal bits across executions on `device`, if it does not.
    pub fn no_invariance(self, device: DeviceKind) -> Option<String> {
        (!self.is_invariant(device)).then(|| {
            format!("policy `{self}` on {device} promises no equal bits across executions; ask for `invariant`")
        })
    }

    /// Whether activations are rounded to BF16 at the policy's boundaries.
    pub fn rounds_to_bf16(self) -> bool {
        self != Policy::F32
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Policy::F32 => "f32",
            Policy::Reference => "reference",
            Policy::Invariant => "invariant",
            Policy::Fast => "fast",
        })
    }
}

impl std::str::FromStr for Policy {
    type Err = String;

    fn from_str(text: &str) -> Result<Policy, String> {
        Policy::ALL.into_iter().find(|p| p.to_string() == text).ok_or_else(|| {
            format!("unknown policy `{text}`; policies are f32, reference, invariant, fast")
        })
    }
}

/// A device does not have a policy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("policy `{policy}` is not available on {device}; available: {}", list(*.device))]
pub struct PolicyError {
    pub policy: Policy,
    pub device: DeviceKind,
}

fn list(device: DeviceKind) -> String {
    let mut names: Vec<String> = Policy::available(device).iter().map(Policy::to_string).collect();
    if device == DeviceKind::Cpu {
        names.push("invariant (alias of reference)".into());
    }
    names.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_policy_of_one_device_leaves_its_order_to_a_library() {
        for device in [DeviceKind::Cpu, DeviceKind::Cuda] {
            assert_eq!(device.to_string().parse(), Ok(device));
            assert_eq!(Policy::available(device)[0], Policy::Fast, "the default on {device}");
            for policy in Policy::available(device) {
                let invariant = (*policy, device) != (Policy::Fast, DeviceKind::Cuda);
                assert_eq!(policy.is_invariant(device), invariant, "{policy} on {device}");
                assert_eq!(policy.no_invariance(device).is_none(), invariant);
            }
        }
        assert!("gpu".parse::<DeviceKind>().is_err());
        assert!(Policy::Reference.resolve(DeviceKind::Cuda).is_err());
    }
}
