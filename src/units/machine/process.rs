//! Readings of this process and of the processors' thermal state.

use super::memory::field;
use super::read;

/// Peak resident memory of this process, where the system says.
pub fn peak_resident_bytes() -> Option<u64> {
    field(&read("/proc/self/status")?, "VmHWM")
}

/// Throttling events of all processors since they started; `None` where they are not counted
/// (most virtual machines).
pub fn throttle_events() -> Option<u64> {
    let folders = std::fs::read_dir("/sys/devices/system/cpu").ok()?;
    let counts: Vec<u64> = folders
        .flatten()
        .flat_map(|entry| {
            ["core_throttle_count", "package_throttle_count"].map(|name| {
                let path = entry.path().join("thermal_throttle").join(name);
                read(&path.to_string_lossy()).and_then(|text| text.parse().ok())
            })
        })
        .flatten()
        .collect();
    (!counts.is_empty()).then(|| counts.iter().sum())
}

#[cfg(test)]
mod tests {
    #[test]
    #[cfg(target_os = "linux")]
    fn the_peak_covers_what_was_touched() {
        let before = super::peak_resident_bytes().unwrap();
        let touched = vec![1u8; 64 << 20];
        let after = super::peak_resident_bytes().unwrap();
        assert!(touched.iter().map(|b| u64::from(*b)).sum::<u64>() == 64 << 20);
        assert!(before > 0 && after >= 64 << 20, "{before} {after}");
    }
}
