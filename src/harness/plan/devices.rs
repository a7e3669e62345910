//! The devices of this machine, as far as gates can use them.

use crate::backend::{DeviceKind, cuda};
use crate::harness::records::DeviceRecord;
use crate::units::Machine;

/// Every kind of device with what there is of it here.
///
/// A CUDA device that is present runs gates about the device itself; gates about models have no
/// trial there until the engine has a policy for it.
pub fn devices() -> Vec<DeviceRecord> {
    let cpu = Machine::probe().cpu;
    let model = cpu.model.unwrap_or_else(|| cpu.architecture.to_owned());
    let (count, detail) = match cuda::devices() {
        Ok(found) if found.is_empty() => (0, "no CUDA device was found".to_owned()),
        Ok(found) => (found.len() as u64, found[0].name.clone()),
        Err(error) => (0, error.to_string()),
    };
    vec![
        DeviceRecord { device: DeviceKind::Cpu, count: 1, detail: model },
        DeviceRecord { device: DeviceKind::Cuda, count, detail },
    ]
}
