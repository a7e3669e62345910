//! How any command says where and how a model is executed.

use super::counts::threads;
use super::placement_args::PlacementArgs;
use super::{Failure, OrExit};
use crate::backend::{DeviceKind, Policy, cuda};
use crate::engine::EngineOptions;
use crate::placement::Device;
use crate::units::Exit;
use clap::Args;
use std::str::FromStr;

/// The flags that choose device, policy and threads.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Execution")]
pub(crate) struct EngineArgs {
    /// Where to run: auto, cpu, cuda or cuda:N
    #[arg(long, value_name = "DEVICE", default_value = "auto")]
    pub(crate) device: DeviceChoice,
    /// Numerical policy: f32, reference, invariant or fast [default: the device's]
    #[arg(long, value_name = "POLICY")]
    pub(crate) policy: Option<Policy>,
    /// CPU threads [default: one per core]
    #[arg(long, value_name = "N", value_parser = threads, allow_hyphen_values = true)]
    pub(crate) threads: Option<usize>,
    #[command(flatten)]
    pub(crate) placement: PlacementArgs,
}

/// The device asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DeviceChoice {
    /// A GPU where one works, else the CPU.
    Auto,
    Cpu,
    /// The first GPU, those that `--gpus` names, or this one.
    Cuda(Option<usize>),
}

impl FromStr for DeviceChoice {
    type Err = String;

    fn from_str(text: &str) -> Result<DeviceChoice, String> {
        let ordinal = |n: &str| n.parse().ok().map(|n| DeviceChoice::Cuda(Some(n)));
        match text {
            "auto" => Some(DeviceChoice::Auto),
            "cpu" => Some(DeviceChoice::Cpu),
            "cuda" => Some(DeviceChoice::Cuda(None)),
            other => other.strip_prefix("cuda:").and_then(ordinal),
        }
        .ok_or_else(|| "expected auto, cpu, cuda or cuda:N with a device number N".to_owned())
    }
}

/// The first GPU if there is one and its kernels can be had, else the CPU.
fn automatic() -> Device {
    let found = cuda::devices().is_ok_and(|all| !all.is_empty());
    let kernels = cuda::nvrtc_version().is_ok() || cfg!(feature = "embedded-kernels");
    if found && kernels { Device::Cuda(0) } else { Device::Cpu }
}

impl EngineArgs {
    /// The options for an engine.
    ///
    /// # Errors
    /// 64 where the device cannot run a model, or lacks the policy.
    pub(crate) fn options(&self) -> Result<EngineOptions, Failure> {
        let device = self.device()?;
        let kind = match device {
            Device::Cpu => DeviceKind::Cpu,
            Device::Cuda(_) => DeviceKind::Cuda,
        };
        if kind == DeviceKind::Cuda {
            self.gpus_are_there(device)?;
        }
        let default = Policy::available(kind).first().copied().unwrap_or(Policy::F32);
        let policy = self.policy.unwrap_or(default);
        policy.resolve(kind).or_exit(Exit::Usage)?;
        let placement = self.placement.is_given().then(|| self.placement.request(device));
        Ok(EngineOptions {
            device,
            placement,
            policy,
            threads: self.threads,
            ..EngineOptions::default()
        })
    }

    /// The device, the first one where `--gpus` names several; `--gpus` without `--device` means GPUs.
    fn device(&self) -> Result<Device, Failure> {
        let gpus = &self.placement.gpus;
        if let DeviceChoice::Cuda(Some(one)) = self.device
            && let Some(other) = gpus.iter().find(|gpu| **gpu != one)
        {
            return Err(Failure::usage(format!(
                "--device cuda:{one} names one GPU and --gpus another, {other}; leave one of them out \
                 (--device cuda takes those of --gpus)"
            )));
        }
        let first = gpus.first().copied();
        Ok(match self.device {
            DeviceChoice::Auto => first.map_or_else(automatic, Device::Cuda),
            DeviceChoice::Cpu => Device::Cpu,
            DeviceChoice::Cuda(one) => Device::Cuda(one.or(first).unwrap_or(0)),
        })
    }

    /// Refuses a GPU that the machine does not have, by the flag that names it.
    fn gpus_are_there(&self, device: Device) -> Result<(), Failure> {
        let count = cuda::devices().or_exit(Exit::Usage)?.len();
        let gpus = &self.placement.gpus;
        let flag = match (device, gpus.iter().find(|gpu| **gpu >= count)) {
            (_, Some(missing)) => format!("--gpus {missing}"),
            (Device::Cuda(one), None) if gpus.is_empty() && one >= count => {
                format!("--device {device}")
            }
            _ => return Ok(()),
        };
        Err(Failure::usage(format!(
            "{flag}: this machine has {count} CUDA devices; `assay doctor` says what was looked for, \
             --device cpu runs anywhere"
        )))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_spelt_one_way() {
        assert_eq!("auto".parse(), Ok(DeviceChoice::Auto));
        assert_eq!("cpu".parse(), Ok(DeviceChoice::Cpu));
        assert_eq!("cuda".parse(), Ok(DeviceChoice::Cuda(None)));
        assert_eq!("cuda:3".parse(), Ok(DeviceChoice::Cuda(Some(3))));
        for bad in ["", "gpu", "cuda:", "cuda:-1", "cuda3", "CPU"] {
            assert!(bad.parse::<DeviceChoice>().is_err(), "{bad}");
        }
    }
}
