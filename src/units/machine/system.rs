//! The operating system.

use super::read;

/// Facts of the operating system.
#[derive(Clone, Debug, PartialEq)]
pub struct System {
    /// `linux`, `macos`, …
    pub family: &'static str,
    /// The distribution's own name and version.
    pub name: Option<String>,
    /// Release of the kernel.
    pub kernel: Option<String>,
    /// Name of this machine.
    pub host: Option<String>,
}

impl System {
    /// Reads the facts of this machine's operating system.
    pub fn probe() -> System {
        System {
            family: std::env::consts::OS,
            name: read("/etc/os-release").as_deref().and_then(pretty_name),
            kernel: read("/proc/sys/kernel/osrelease"),
            host: read("/proc/sys/kernel/hostname"),
        }
    }
}

fn pretty_name(release: &str) -> Option<String> {
    let value = release.lines().find_map(|l| l.strip_prefix("PRETTY_NAME="))?;
    let value = value.trim().trim_matches(['"', '\'']);
    (!value.is_empty()).then(|| value.to_owned())
}

#[cfg(test)]
mod tests {
    #[test]
    fn quotes_are_not_part_of_the_name() {
        let release = "ID=debian\nPRETTY_NAME=\"Debian GNU/Linux 12 (bookworm)\"\n";
        assert_eq!(super::pretty_name(release).as_deref(), Some("Debian GNU/Linux 12 (bookworm)"));
        assert_eq!(super::pretty_name("PRETTY_NAME=\"\""), None);
    }
}
