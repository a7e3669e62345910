//! What a GPU said of itself while a launch was measured.

use super::Line;
use crate::backend::cuda::{DeviceState, ThrottleReason};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// A reading, or why it cannot be had.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged, deny_unknown_fields)]
pub enum Sensed<T> {
    Known(T),
    Unavailable { unavailable: String },
}

impl<T> Sensed<T> {
    /// The reading, where there is one.
    pub fn known(&self) -> Option<&T> {
        match self {
            Sensed::Known(value) => Some(value),
            Sensed::Unavailable { .. } => None,
        }
    }
}

impl<T> From<Result<T, String>> for Sensed<T> {
    fn from(reading: Result<T, String>) -> Sensed<T> {
        match reading {
            Ok(value) => Sensed::Known(value),
            Err(unavailable) => Sensed::Unavailable { unavailable },
        }
    }
}

/// The lowest and the highest of several readings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Extremes {
    pub lowest: u32,
    pub highest: u32,
}

/// A GPU through the quads of a launch: it is read before each of them and behind the last.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeviceReading {
    /// The clock of the multiprocessors.
    pub sm_clock_mhz: Sensed<Extremes>,
    pub memory_clock_mhz: Sensed<Extremes>,
    pub temperature_c: Sensed<Extremes>,
    /// Every reason that a reading gave for clocks below the highest.
    pub throttle_reasons: Sensed<BTreeSet<ThrottleReason>>,
    /// The power cap behind the last quad.
    pub power_limit_w: Sensed<f64>,
    /// What the board took from the first reading to the last.
    pub energy_j: Sensed<f64>,
    /// Whether memory corrects its errors.
    pub ecc: Sensed<bool>,
}

impl DeviceReading {
    /// The states of a launch, in the order they were read, as one record; `None` without any.
    pub(super) fn over(states: &[DeviceState]) -> Option<DeviceReading> {
        let (first, last) = (states.first()?, states.last()?);
        let reasons = known(states.iter().map(|s| &s.throttle_reasons))
            .map(|all| all.into_iter().flatten().collect::<BTreeSet<ThrottleReason>>());
        Some(DeviceReading {
            sm_clock_mhz: extremes(states.iter().map(|s| &s.sm_clock_mhz)).into(),
            memory_clock_mhz: extremes(states.iter().map(|s| &s.memory_clock_mhz)).into(),
            temperature_c: extremes(states.iter().map(|s| &s.temperature_c)).into(),
            throttle_reasons: reasons.into(),
            power_limit_w: last.power_limit_w.clone().into(),
            energy_j: energy_j(first, last).into(),
            ecc: last.ecc.clone().into(),
        })
    }
}

/// The readings that could be had; without any, why the first could not.
fn known<'a, T: Clone + 'a>(
    readings: impl Iterator<Item = &'a Result<T, String>>,
) -> Result<Vec<T>, String> {
    let (mut known, mut reason) = (Vec::new(), None);
    for reading in readings {
        match reading {
            Ok(value) => known.push(value.clone()),
            Err(why) => reason = reason.or(Some(why)),
        }
    }
    match reason {
        Some(why) if known.is_empty() => Err(why.clone()),
        _ => Ok(known),
    }
}

fn extremes<'a>(
    readings: impl Iterator<Item = &'a Result<u32, String>>,
) -> Result<Extremes, String> {
    let known = known(readings)?;
    let lowest = known.iter().copied().min().unwrap_or_default();
    let highest = known.iter().copied().max().unwrap_or_default();
    Ok(Extremes { lowest, highest })
}

fn energy_j(first: &DeviceState, last: &DeviceState) -> Result<f64, String> {
    let (before, after) = (first.energy_mj.clone()?, last.energy_mj.clone()?);
    let taken = after.checked_sub(before).ok_or("the counter was reset during the launch")?;
    Ok(taken as f64 / 1e3)
}

/// Why a device slowed itself down, and in which launches; `None` where no reading says so.
pub(super) fn slowdown(lines: &[Line]) -> Option<String> {
    let mut launches: BTreeMap<ThrottleReason, Vec<String>> = BTreeMap::new();
    for line in lines {
        let Line::LaunchEnd(end) = line else { continue };
        let reasons = end.device.as_ref().and_then(|d| d.throttle_reasons.known());
        for reason in reasons.into_iter().flatten().filter(|r| r.is_slowdown()) {
            launches.entry(*reason).or_default().push(end.launch.to_string());
        }
    }
    let each: Vec<String> = launches
        .iter()
        .map(|(reason, launches)| {
            let noun = if launches.len() == 1 { "launch" } else { "launches" };
            format!("{reason} in {noun} {}", launches.join(", "))
        })
        .collect();
    (!each.is_empty()).then(|| format!("throttled clocks: {}", each.join("; ")))
}

#[cfg(test)]
mod tests {
    use super::super::testing::{lines, plan};
    use super::super::{Decision, LaunchEnd, decide};
    use super::*;

    fn state(sm_clock_mhz: u32, energy_mj: u64, reasons: &[ThrottleReason]) -> DeviceState {
        DeviceState {
            sm_clock_mhz: Ok(sm_clock_mhz),
            memory_clock_mhz: Err("Not Supported".into()),
            temperature_c: Ok(sm_clock_mhz / 50),
            throttle_reasons: Ok(reasons.iter().copied().collect()),
            power_limit_w: Ok(700.0),
            energy_mj: Ok(energy_mj),
            ecc: Ok(true),
        }
    }

    /// Lines of a clear gain whose launches read `reasons`, by launch.
    fn with_reasons(reasons: impl Fn(u32) -> Vec<ThrottleReason>) -> Vec<Line> {
        let mut lines = lines(20, |_| 1.4);
        for line in &mut lines {
            if let Line::LaunchEnd(end) = line {
                end.device = DeviceReading::over(&[state(1980, 5, &reasons(end.launch))]);
            }
        }
        lines
    }

    #[test]
    fn a_launch_is_the_span_of_its_readings() {
        assert_eq!(DeviceReading::over(&[]), None);
        let (idle, cap) = (ThrottleReason::GpuIdle, ThrottleReason::SwPowerCap);
        let both: BTreeSet<ThrottleReason> = [idle, cap].into();
        let mut states = [state(1980, 7_000, &[idle]), state(1755, 9_500, &[cap, idle])];
        states[0].ecc = Err("elsewhere".into());
        let reading = DeviceReading::over(&states).unwrap();
        let sm_clock_mhz = Extremes { lowest: 1755, highest: 1980 };
        assert_eq!(reading.sm_clock_mhz, Sensed::Known(sm_clock_mhz));
        assert_eq!(reading.throttle_reasons, Sensed::Known(both.clone()));
        assert_eq!(reading.energy_j, Sensed::Known(2.5));
        assert_eq!(reading.ecc, Sensed::Known(true));
        let unavailable = "Not Supported".to_owned();
        assert_eq!(reading.memory_clock_mhz, Sensed::Unavailable { unavailable });
        // One reading that fails hides none of the others.
        states[0].throttle_reasons = Err("Unknown Error".into());
        states[1].energy_mj = Ok(1);
        let reading = DeviceReading::over(&states).unwrap();
        assert_eq!(reading.throttle_reasons, Sensed::Known(both));
        assert_eq!(reading.energy_j.known(), None);
    }

    #[test]
    fn a_record_holds_values_and_reasons() {
        let device = DeviceReading::over(&[state(1980, 7, &[ThrottleReason::GpuIdle])]);
        let host_bytes = BTreeMap::new();
        let end = LaunchEnd { launch: 0, host_bytes, throttle_events: None, device };
        let text = serde_json::to_string(&Line::LaunchEnd(end.clone())).unwrap();
        for words in [
            r#""sm_clock_mhz":{"lowest":1980,"highest":1980}"#,
            r#""memory_clock_mhz":{"unavailable":"Not Supported"}"#,
            r#""throttle_reasons":["gpu_idle"]"#,
            r#""power_limit_w":700.0,"energy_j":0.0,"ecc":true"#,
        ] {
            assert!(text.contains(words), "{text}");
        }
        assert_eq!(serde_json::from_str::<Line>(&text).unwrap(), Line::LaunchEnd(end.clone()));
        let more = text.replace("{\"unavailable\"", "{\"more\":1,\"unavailable\"");
        assert!(serde_json::from_str::<Line>(&more).is_err(), "{more}");
        // A launch without a GPU is written as before.
        let host = LaunchEnd { device: None, ..end };
        let text = serde_json::to_string(&Line::LaunchEnd(host.clone())).unwrap();
        assert!(!text.contains("device"), "{text}");
        assert_eq!(serde_json::from_str::<Line>(&text).unwrap(), Line::LaunchEnd(host));
    }

    #[test]
    fn a_device_that_slows_itself_down_makes_the_run_invalid() {
        let (soft, hard) = (ThrottleReason::SwThermalSlowdown, ThrottleReason::HwSlowdown);
        let hot = with_reasons(|launch| match launch {
            0 => vec![ThrottleReason::GpuIdle],
            1 => vec![soft, hard],
            _ => vec![soft],
        });
        let verdict = decide(&plan(1.25), &hot, false).unwrap();
        assert_eq!(verdict.decision, Decision::Invalid);
        let message = "throttled clocks: hardware slowdown in launch 1; \
                       thermal slowdown by software in launches 1, 2, 3";
        assert_eq!(verdict.reasons, [message]);
        for reason in [ThrottleReason::HwThermalSlowdown, ThrottleReason::HwPowerBrakeSlowdown] {
            let verdict = decide(&plan(1.25), &with_reasons(|_| vec![reason]), false).unwrap();
            assert_eq!(verdict.decision, Decision::Invalid, "{reason}");
        }
    }

    #[test]
    fn idling_set_clocks_and_the_power_cap_invalidate_nothing() {
        let harmless = with_reasons(|_| {
            vec![
                ThrottleReason::GpuIdle,
                ThrottleReason::ApplicationsClocksSetting,
                ThrottleReason::SwPowerCap,
                ThrottleReason::SyncBoost,
                ThrottleReason::DisplayClockSetting,
                ThrottleReason::Unknown,
            ]
        });
        let verdict = decide(&plan(1.25), &harmless, false).unwrap();
        assert_eq!(verdict.decision, Decision::Admit, "{verdict:?}");
    }
}
