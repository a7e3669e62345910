//! Main memory.

use super::read;

/// Facts of main memory.
#[derive(Clone, Debug, PartialEq)]
pub struct Memory {
    /// Memory of the machine.
    pub total_bytes: Option<u64>,
    /// What the system thinks can be allocated now without swapping.
    pub available_bytes: Option<u64>,
    /// The limit of this process's container, where there is one below the total.
    pub limit_bytes: Option<u64>,
}

impl Memory {
    /// Reads the facts of this machine's memory.
    pub fn probe() -> Memory {
        let info = read("/proc/meminfo").unwrap_or_default();
        let total_bytes = field(&info, "MemTotal");
        let limit = cgroup_limit();
        Memory {
            total_bytes,
            available_bytes: field(&info, "MemAvailable"),
            limit_bytes: limit.filter(|limit| total_bytes.is_none_or(|total| *limit < total)),
        }
    }

    /// What a process may use at most, as far as it is known.
    pub fn usable_bytes(&self) -> Option<u64> {
        self.limit_bytes.or(self.total_bytes)
    }
}

/// A line of `/proc/meminfo`, which counts in KiB and says kB.
pub(super) fn field(info: &str, name: &str) -> Option<u64> {
    let line = info.lines().find_map(|l| l.strip_prefix(name)?.strip_prefix(':'))?;
    line.trim().strip_suffix(" kB")?.parse::<u64>().ok()?.checked_mul(1024)
}

/// The smallest limit on the way from this process's control group to the root.
fn cgroup_limit() -> Option<u64> {
    let own = read("/proc/self/cgroup")?;
    let mut path =
        own.lines().find_map(|l| l.strip_prefix("0::"))?.trim_end_matches('/').to_owned();
    let mut smallest: Option<u64> = None;
    loop {
        let limit = read(&format!("/sys/fs/cgroup{path}/memory.max")).and_then(|t| t.parse().ok());
        smallest = smallest.into_iter().chain(limit).min();
        match path.rfind('/') {
            Some(at) => path.truncate(at),
            None => return smallest,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::field;

    #[test]
    fn kilobytes_are_kibibytes() {
        let info =
            "MemTotal:       24570368 kB\nMemFree:          123456 kB\nMemAvailable:   1024 kB";
        assert_eq!(field(info, "MemTotal"), Some(24_570_368 * 1024));
        assert_eq!(field(info, "MemAvailable"), Some(1024 * 1024));
        assert_eq!(field(info, "Mem"), None);
        assert_eq!(field("", "MemTotal"), None);
    }
}
