//! The devices of this machine, as far as the engine can use them.

use crate::backend::{DeviceKind, Policy};
use crate::harness::records::DeviceRecord;
use crate::units::Machine;

/// Every kind of device with what there is of it here.
pub fn devices() -> Vec<DeviceRecord> {
    let cpu = Machine::probe().cpu;
    let model = cpu.model.unwrap_or_else(|| cpu.architecture.to_owned());
    vec![
        DeviceRecord { device: DeviceKind::Cpu, count: 1, detail: model },
        DeviceRecord { device: DeviceKind::Cuda, count: 0, detail: cuda_detail().to_owned() },
    ]
}

/// Why there is no CUDA device.
fn cuda_detail() -> &'static str {
    if Policy::available(DeviceKind::Cuda).is_empty() {
        "this version of assay runs models on the CPU only"
    } else {
        "no CUDA device was found"
    }
}
