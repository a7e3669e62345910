//! What a GPU said of itself while it was measured.

use super::super::format;
use crate::backend::cuda::ThrottleReason;
use crate::harness::scenario::{DeviceReading, Extremes, Line, Plan, Sensed};
use std::collections::BTreeSet;

/// Rows of a name and its words; none for a record without such readings.
pub(super) fn rows(plan: &Plan, lines: &[Line]) -> Vec<(&'static str, String)> {
    let readings: Vec<&DeviceReading> = lines
        .iter()
        .filter_map(|l| if let Line::LaunchEnd(end) = l { end.device.as_ref() } else { None })
        .collect();
    if readings.is_empty() {
        return Vec::new();
    }
    let sm = words(readings.iter().map(|r| &r.sm_clock_mhz), |all| range(all, "MHz"));
    let memory = words(readings.iter().map(|r| &r.memory_clock_mhz), |all| range(all, "MHz"));
    vec![
        ("GPU clocks", format!("multiprocessors {sm}; memory {memory}")),
        ("GPU temperature", words(readings.iter().map(|r| &r.temperature_c), |t| range(t, "°C"))),
        ("GPU throttle reasons", words(readings.iter().map(|r| &r.throttle_reasons), reasons)),
        ("GPU power cap", words(readings.iter().map(|r| &r.power_limit_w), watts)),
        ("GPU energy", energy(plan, lines, &readings)),
        ("GPU ECC", words(readings.iter().map(|r| &r.ecc), switch)),
    ]
}

/// What the known readings say; how many launches have none, and why the first of them has not.
fn words<'a, T: 'a>(
    readings: impl Iterator<Item = &'a Sensed<T>>,
    say: impl Fn(&[&'a T]) -> String,
) -> String {
    let (mut known, mut missing) = (Vec::new(), Vec::new());
    for reading in readings {
        match reading {
            Sensed::Known(value) => known.push(value),
            Sensed::Unavailable { unavailable } => missing.push(unavailable),
        }
    }
    match missing.first() {
        None => say(&known),
        Some(why) if known.is_empty() => format!("unavailable ({why})"),
        Some(why) => {
            let launches = known.len() + missing.len();
            format!(
                "{}; unavailable in {} of {launches} launches ({why})",
                say(&known),
                missing.len()
            )
        }
    }
}

fn range(all: &[&Extremes], unit: &str) -> String {
    let lowest = all.iter().map(|e| e.lowest).min().unwrap_or_default();
    let highest = all.iter().map(|e| e.highest).max().unwrap_or_default();
    if lowest == highest {
        format!("{lowest} {unit}")
    } else {
        format!("{lowest} – {highest} {unit}")
    }
}

fn reasons(all: &[&BTreeSet<ThrottleReason>]) -> String {
    let all: BTreeSet<ThrottleReason> = all.iter().flat_map(|r| r.iter().copied()).collect();
    let names: Vec<String> = all.iter().map(ToString::to_string).collect();
    if names.is_empty() { "none".into() } else { names.join(", ") }
}

fn watts(all: &[&f64]) -> String {
    let caps: BTreeSet<String> = all.iter().map(|w| format!("{w:.0} W")).collect();
    caps.into_iter().collect::<Vec<_>>().join(", ")
}

fn switch(all: &[&bool]) -> String {
    match (all.contains(&&true), all.contains(&&false)) {
        (true, true) => "on in some launches".into(),
        (true, false) => "on".into(),
        _ => "off".into(),
    }
}

/// Joules per decoded token over the launches that have a reading of energy.
fn energy(plan: &Plan, lines: &[Line], readings: &[&DeviceReading]) -> String {
    let (mut joules, mut tokens, mut in_launch) = (0.0f64, 0u64, 0u64);
    for line in lines {
        match line {
            Line::Launch(_) => in_launch = 0,
            Line::Quad(quad) => {
                let of_sample = plan.points.get(quad.point).map_or(0, |p| {
                    u64::from(p.decode_tokens).saturating_mul(u64::from(p.sequences))
                });
                let of_quad = of_sample.saturating_mul(quad.samples.len() as u64);
                in_launch = in_launch.saturating_add(of_quad);
            }
            Line::LaunchEnd(end) => {
                if let Some(taken) = end.device.as_ref().and_then(|d| d.energy_j.known()) {
                    joules += *taken;
                    tokens = tokens.saturating_add(in_launch);
                }
            }
        }
    }
    words(readings.iter().map(|r| &r.energy_j), |_| {
        let taken = format!(
            "{} J between the first quad and the last of every launch",
            format::value(joules)
        );
        if tokens == 0 {
            return taken;
        }
        format!(
            "{} J per decoded token ({taken}, {} tokens of all arms; prompts, bandwidth readings and idle time included)",
            format::value(joules / tokens as f64),
            format::count(tokens)
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::scenario::testing::{lines, plan};

    fn unavailable<T>() -> Sensed<T> {
        Sensed::Unavailable { unavailable: "Not Supported".into() }
    }

    fn reading(highest: u32) -> DeviceReading {
        DeviceReading {
            sm_clock_mhz: Sensed::Known(Extremes { lowest: 1755, highest }),
            memory_clock_mhz: Sensed::Known(Extremes { lowest: 3201, highest: 3201 }),
            temperature_c: unavailable(),
            throttle_reasons: Sensed::Known([ThrottleReason::SwPowerCap].into()),
            power_limit_w: Sensed::Known(700.0),
            energy_j: Sensed::Known(80.0),
            ecc: Sensed::Known(true),
        }
    }

    /// 20 quads in four launches of 5: 160 tokens a launch.
    fn measured(device: impl Fn(u32) -> Option<DeviceReading>) -> Vec<(&'static str, String)> {
        let mut lines = lines(20, |_| 1.4);
        for line in &mut lines {
            if let Line::LaunchEnd(end) = line {
                end.device = device(end.launch);
            }
        }
        rows(&plan(1.25), &lines)
    }

    #[test]
    fn a_record_without_readings_has_no_rows() {
        assert!(measured(|_| None).is_empty());
    }

    #[test]
    fn readings_of_all_launches_are_one_row_each() {
        let rows = measured(|launch| Some(reading(1980 - launch)));
        let words = |name: &str| rows.iter().find(|r| r.0 == name).unwrap().1.as_str();
        let clocks = "multiprocessors 1755 – 1980 MHz; memory 3201 MHz";
        assert_eq!(words("GPU clocks"), clocks);
        assert_eq!(words("GPU temperature"), "unavailable (Not Supported)");
        assert_eq!(words("GPU throttle reasons"), "power cap");
        assert_eq!(words("GPU power cap"), "700 W");
        assert_eq!(words("GPU ECC"), "on");
        let energy = words("GPU energy");
        assert!(energy.starts_with("0.500 J per decoded token (320.0 J "), "{energy}");
        assert!(energy.contains(", 640 tokens of all arms;"), "{energy}");
    }

    #[test]
    fn launches_without_a_reading_are_counted_and_count_no_tokens() {
        let rows = measured(|launch| {
            let mut reading = reading(1980);
            if launch == 2 {
                reading.energy_j = unavailable();
            }
            Some(reading)
        });
        let energy = &rows.iter().find(|r| r.0 == "GPU energy").unwrap().1;
        assert!(energy.starts_with("0.500 J per decoded token (240.0 J "), "{energy}");
        assert!(energy.ends_with("unavailable in 1 of 4 launches (Not Supported)"), "{energy}");
    }
}
