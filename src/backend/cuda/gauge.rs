//! What a device says of its clocks, heat and power.

use super::error::Doing;
use super::nvml::NvmlDevice;
use super::{CudaError, Library};
use cudarc::driver::{result, sys};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::ffi::{CStr, CString};
use std::fmt;

/// Why a device's clocks are not at their highest, in the driver's terms.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ThrottleReason {
    GpuIdle,
    ApplicationsClocksSetting,
    SwPowerCap,
    HwSlowdown,
    SyncBoost,
    SwThermalSlowdown,
    HwThermalSlowdown,
    HwPowerBrakeSlowdown,
    DisplayClockSetting,
    /// One that this build has no name for.
    Unknown,
}

/// The reasons with their bits in NVML.
const REASONS: [(u64, ThrottleReason); 9] = [
    (0x001, ThrottleReason::GpuIdle),
    (0x002, ThrottleReason::ApplicationsClocksSetting),
    (0x004, ThrottleReason::SwPowerCap),
    (0x008, ThrottleReason::HwSlowdown),
    (0x010, ThrottleReason::SyncBoost),
    (0x020, ThrottleReason::SwThermalSlowdown),
    (0x040, ThrottleReason::HwThermalSlowdown),
    (0x080, ThrottleReason::HwPowerBrakeSlowdown),
    (0x100, ThrottleReason::DisplayClockSetting),
];

impl ThrottleReason {
    fn of_bits(bits: u64) -> BTreeSet<ThrottleReason> {
        let set = REASONS.iter().filter(|(bit, _)| bits & *bit != 0);
        let mut reasons: BTreeSet<ThrottleReason> = set.map(|(_, reason)| *reason).collect();
        let named = REASONS.iter().fold(0u64, |all, (bit, _)| all | *bit);
        if bits & !named != 0 {
            reasons.insert(ThrottleReason::Unknown);
        }
        reasons
    }

    /// Whether the device slows itself down for heat or for its hardware's sake, so that times taken
    /// meanwhile do not count. The power cap does not: a large GPU that works at its limit touches it in
    /// ordinary operation, and it is reported instead.
    pub fn is_slowdown(self) -> bool {
        matches!(
            self,
            ThrottleReason::HwSlowdown
                | ThrottleReason::SwThermalSlowdown
                | ThrottleReason::HwThermalSlowdown
                | ThrottleReason::HwPowerBrakeSlowdown
        )
    }
}

impl fmt::Display for ThrottleReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ThrottleReason::GpuIdle => "idle",
            ThrottleReason::ApplicationsClocksSetting => "clocks set for applications",
            ThrottleReason::SwPowerCap => "power cap",
            ThrottleReason::HwSlowdown => "hardware slowdown",
            ThrottleReason::SyncBoost => "sync boost",
            ThrottleReason::SwThermalSlowdown => "thermal slowdown by software",
            ThrottleReason::HwThermalSlowdown => "thermal slowdown by hardware",
            ThrottleReason::HwPowerBrakeSlowdown => "power brake",
            ThrottleReason::DisplayClockSetting => "clocks set for displays",
            ThrottleReason::Unknown => "a reason that this build does not know",
        })
    }
}

/// A device at one moment. A reading that cannot be had is the reason for that.
#[derive(Clone, Debug, PartialEq)]
pub struct DeviceState {
    pub sm_clock_mhz: Result<u32, String>,
    pub memory_clock_mhz: Result<u32, String>,
    pub temperature_c: Result<u32, String>,
    pub throttle_reasons: Result<BTreeSet<ThrottleReason>, String>,
    /// The power cap.
    pub power_limit_w: Result<f64, String>,
    /// What the board took since the driver was loaded.
    pub energy_mj: Result<u64, String>,
    /// Whether memory corrects its errors.
    pub ecc: Result<bool, String>,
}

/// Reads the state of a device through NVML.
#[derive(Debug)]
pub struct DeviceGauge {
    device: Result<NvmlDevice, String>,
}

impl DeviceGauge {
    /// The gauge of a CUDA device. It is found by its PCI address, because `CUDA_VISIBLE_DEVICES`
    /// numbers devices for CUDA alone. Where it cannot be had, every reading says why.
    pub fn of(ordinal: usize) -> DeviceGauge {
        let address = pci_address(ordinal).map_err(|error| error.to_string());
        DeviceGauge { device: address.and_then(|address| NvmlDevice::at(&address)) }
    }

    /// The device now.
    pub fn read(&self) -> DeviceState {
        DeviceState {
            sm_clock_mhz: self.ask(NvmlDevice::sm_clock_mhz),
            memory_clock_mhz: self.ask(NvmlDevice::memory_clock_mhz),
            temperature_c: self.ask(NvmlDevice::temperature_c),
            throttle_reasons: self.ask(NvmlDevice::event_reasons).map(ThrottleReason::of_bits),
            power_limit_w: self.ask(NvmlDevice::power_limit_mw).map(|mw| f64::from(mw) / 1e3),
            energy_mj: self.ask(NvmlDevice::energy_mj),
            ecc: self.ask(NvmlDevice::ecc),
        }
    }

    fn ask<T>(&self, reading: fn(&NvmlDevice) -> Result<T, String>) -> Result<T, String> {
        reading(self.device.as_ref().map_err(String::clone)?)
    }
}

/// Where a CUDA device sits, e.g. `0000:3B:00.0`.
fn pci_address(ordinal: usize) -> Result<CString, CudaError> {
    let doing = || format!("asking for the PCI address of device {ordinal}");
    Library::Driver.require()?;
    result::init().doing(doing())?;
    let device = result::device::get(ordinal as i32).doing(doing())?;
    let mut text = [0u8; 32];
    let start = text.as_mut_ptr().cast();
    // SAFETY: the handle comes from the driver; the text has 32 bytes.
    let status = unsafe { sys::cuDeviceGetPCIBusId(start, 32, device) };
    status.result().doing(doing())?;
    let address = CStr::from_bytes_until_nul(&text);
    address
        .map(CStr::to_owned)
        .map_err(|error| CudaError::Driver { doing: doing(), code: error.to_string() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_bit_has_a_name_and_four_are_slowdowns() {
        let reasons = |bits: u64| -> Vec<ThrottleReason> {
            ThrottleReason::of_bits(bits).into_iter().collect()
        };
        assert!(reasons(0).is_empty());
        assert_eq!(reasons(0x1), [ThrottleReason::GpuIdle]);
        let two = [ThrottleReason::SwPowerCap, ThrottleReason::SwThermalSlowdown];
        assert_eq!(reasons(0x24), two);
        assert_eq!(reasons(0x400), [ThrottleReason::Unknown]);
        let slowdowns: u64 = REASONS.iter().filter(|r| r.1.is_slowdown()).map(|r| r.0).sum();
        assert_eq!(slowdowns, 0x08 | 0x20 | 0x40 | 0x80);
        assert!(!ThrottleReason::Unknown.is_slowdown());
        let name = serde_json::to_string(&ThrottleReason::HwPowerBrakeSlowdown).unwrap();
        assert_eq!(name, "\"hw_power_brake_slowdown\"");
    }

    #[test]
    fn without_nvml_every_reading_says_why() {
        let none = DeviceGauge { device: Err("no NVML here".into()) }.read();
        assert_eq!(none.sm_clock_mhz, Err("no NVML here".to_owned()));
        assert_eq!(none.throttle_reasons, Err("no NVML here".to_owned()));
        assert_eq!(none.ecc, Err("no NVML here".to_owned()));
        // Whatever this machine has: values or reasons, and no panic.
        for ordinal in [0, 9999] {
            let here = DeviceGauge::of(ordinal).read();
            let reasons = [here.sm_clock_mhz.err(), here.energy_mj.err(), here.ecc.err()];
            assert!(reasons.iter().flatten().all(|reason| !reason.is_empty()), "{reasons:?}");
        }
    }
}
