//! How any command says over which devices a model is divided.

use super::counts::{count, ordinal};
use crate::placement::{Device, PlacementRequest};
use clap::Args;
use std::num::NonZeroUsize;

/// The flags that divide a model over ranks.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Placement")]
pub(crate) struct PlacementArgs {
    /// Devices by number: one per rank, or one that all ranks share; a number may stand twice.
    /// On the cpu each is a rank of its own in the same process
    #[arg(long, value_name = "N,N", value_delimiter = ',', value_parser = ordinal, allow_hyphen_values = true)]
    pub(crate) gpus: Vec<usize>,
    /// Tensor parallel: ranks that divide heads and rows of every layer
    #[arg(long, value_name = "N", default_value = "1", value_parser = count, allow_hyphen_values = true)]
    pub(crate) tp: NonZeroUsize,
    /// Expert parallel: ranks that divide the experts
    #[arg(long, value_name = "N", default_value = "1", value_parser = count, allow_hyphen_values = true)]
    pub(crate) ep: NonZeroUsize,
    /// Stages of consecutive layers [default: as many as the devices make]
    #[arg(long, value_name = "N", value_parser = count, allow_hyphen_values = true)]
    pub(crate) pp: Option<NonZeroUsize>,
}

impl PlacementArgs {
    /// Whether anything but the whole model on one device is asked for.
    pub(crate) fn is_given(&self) -> bool {
        !self.gpus.is_empty() || self.tp.get() > 1 || self.ep.get() > 1 || self.pp.is_some()
    }

    /// The request; `device` names the kind, and the device where `--gpus` names none.
    pub(crate) fn request(&self, device: Device) -> PlacementRequest {
        let of_kind = |ordinal: &usize| match device {
            Device::Cpu => Device::Cpu,
            Device::Cuda(_) => Device::Cuda(*ordinal),
        };
        let named: Vec<Device> = self.gpus.iter().map(of_kind).collect();
        PlacementRequest {
            devices: if named.is_empty() { vec![device] } else { named },
            stages: self.pp.map(NonZeroUsize::get),
            tensor: self.tp.get(),
            expert: self.ep.get(),
        }
    }
}
