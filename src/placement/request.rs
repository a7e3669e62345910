//! What is asked for.

use super::{Device, PlacementError};

/// Most ranks of a placement.
const RANKS_LIMIT: usize = 1 << 16;

/// Devices and how to divide a model over them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlacementRequest {
    /// One device that all ranks share, or one per rank, in rank order. A device may be named twice.
    pub devices: Vec<Device>,
    /// Stages of consecutive layers; `None` takes as many as the devices make.
    pub stages: Option<usize>,
    /// Ranks that divide heads and rows.
    pub tensor: usize,
    /// Ranks that divide experts.
    pub expert: usize,
}

impl PlacementRequest {
    /// Everything on one device.
    pub fn single(device: Device) -> PlacementRequest {
        PlacementRequest { devices: vec![device], stages: None, tensor: 1, expert: 1 }
    }

    /// Ranks of one stage. An expert is kept whole, so that expert ranks are tensor ranks, or whole
    /// copies of a tensor group.
    pub fn group_ranks(&self) -> Result<usize, PlacementError> {
        let (tensor, expert) = (self.tensor, self.expert);
        if tensor == 0 || expert == 0 {
            return Err(PlacementError::NoRanks);
        }
        match expert {
            1 => Ok(tensor),
            _ if expert.is_multiple_of(tensor) => Ok(expert),
            _ => Err(PlacementError::Subgroups { tensor, expert }),
        }
    }

    /// The device of every rank and the number of stages.
    pub(super) fn ranks(&self) -> Result<(Vec<Device>, usize), PlacementError> {
        let group = self.group_ranks()?;
        let named = self.devices.len();
        match (named, self.stages) {
            (0, _) | (_, Some(0)) => Err(PlacementError::NoRanks),
            (1, stages) => {
                let stages = stages.unwrap_or(1);
                Ok((vec![self.devices[0]; limited(stages, group)?], stages))
            }
            (_, stages) if named.is_multiple_of(group) => match stages {
                Some(stages) if limited(stages, group)? != named => {
                    Err(PlacementError::DeviceCount { named, stages, group })
                }
                _ => Ok((self.devices.clone(), named / group)),
            },
            (_, Some(stages)) => {
                limited(stages, group)?;
                Err(PlacementError::DeviceCount { named, stages, group })
            }
            (_, None) => {
                limited(1, group)?;
                Err(PlacementError::PartOfStage { named, group })
            }
        }
    }
}

/// The ranks of so many stages.
fn limited(stages: usize, group: usize) -> Result<usize, PlacementError> {
    let found = stages as u128 * group as u128;
    match usize::try_from(found) {
        Ok(ranks) if ranks <= RANKS_LIMIT => Ok(ranks),
        _ => Err(PlacementError::TooManyRanks { found, limit: RANKS_LIMIT }),
    }
}
