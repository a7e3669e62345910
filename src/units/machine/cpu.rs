//! The processor.

use super::read;

/// Facts of the processor.
#[derive(Clone, Debug, PartialEq)]
pub struct Cpu {
    /// Name with vendor, family, model and stepping, so that two models that share a marketing
    /// name are told apart.
    pub model: Option<String>,
    /// Architecture as the compiler names it.
    pub architecture: &'static str,
    /// Instruction sets that matter here and that this processor has, oldest first.
    pub instruction_sets: Vec<&'static str>,
    /// Logical processors of the machine.
    pub logical_processors: Option<usize>,
    /// Physical cores of the machine.
    pub physical_cores: Option<usize>,
    /// Logical processors that this process may use (affinity and container quota).
    pub usable_processors: usize,
    /// The clock that the system reports now, of the fastest processor.
    pub clock_mhz: Option<f64>,
    /// The frequency governor of the first processor.
    pub governor: Option<String>,
}

impl Cpu {
    /// Reads the facts of this machine's processor.
    pub fn probe() -> Cpu {
        let info = read("/proc/cpuinfo").unwrap_or_default();
        let parsed = Info::parse(&info);
        Cpu {
            model: parsed.model,
            architecture: std::env::consts::ARCH,
            instruction_sets: instruction_sets(),
            logical_processors: parsed.logical_processors,
            physical_cores: parsed.physical_cores,
            usable_processors: std::thread::available_parallelism().map_or(1, usize::from),
            clock_mhz: parsed.clock_mhz,
            governor: read("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
        }
    }
}

/// Instruction sets that kernels of this engine use or could use, of those the processor has.
fn instruction_sets() -> Vec<&'static str> {
    macro_rules! detected {
        ($detect:ident: $($name:tt),*) => {
            [$(($name, $detect!($name))),*]
        };
    }
    #[cfg(target_arch = "x86_64")]
    let sets = {
        use std::arch::is_x86_feature_detected;
        detected!(is_x86_feature_detected: "sse2", "sse4.2", "avx", "f16c", "fma", "avx2",
            "avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512vnni", "avx512bf16", "avx512fp16")
    };
    #[cfg(target_arch = "aarch64")]
    let sets = {
        use std::arch::is_aarch64_feature_detected;
        detected!(is_aarch64_feature_detected: "neon", "fp16", "dotprod", "bf16", "i8mm", "sve", "sve2")
    };
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    let sets: [(&str, bool); 0] = [];
    sets.into_iter().filter(|(_, present)| *present).map(|(name, _)| name).collect()
}

/// What `/proc/cpuinfo` says.
#[derive(Debug, Default, PartialEq)]
struct Info {
    model: Option<String>,
    logical_processors: Option<usize>,
    physical_cores: Option<usize>,
    clock_mhz: Option<f64>,
}

impl Info {
    fn parse(text: &str) -> Info {
        let values = |key: &str| {
            let key = key.to_owned();
            text.lines().filter_map(move |line| {
                let (name, value) = line.split_once(':')?;
                (name.trim_end() == key).then(|| value.trim())
            })
        };
        let first = |key: &str| values(key).next().filter(|v| !v.is_empty());
        let logical = values("processor").count();
        // A core is told by its package and its number; siblings repeat the pair.
        let cores: std::collections::BTreeSet<(&str, &str)> =
            values("physical id").zip(values("core id")).collect();
        Info {
            model: model(first),
            logical_processors: (logical > 0).then_some(logical),
            physical_cores: (!cores.is_empty()).then_some(cores.len()),
            clock_mhz: values("cpu MHz")
                .filter_map(|v| v.parse().ok())
                .max_by(|a: &f64, b| a.total_cmp(b)),
        }
    }
}

/// `AMD EPYC 7763 (AuthenticAMD family 25 model 1 stepping 1)` on x86, the part's numbers on ARM.
fn model<'a>(first: impl Fn(&str) -> Option<&'a str>) -> Option<String> {
    let detail: Vec<String> = [
        ("vendor_id", ""),
        ("cpu family", "family "),
        ("model", "model "),
        ("stepping", "stepping "),
        ("CPU implementer", "implementer "),
        ("CPU part", "part "),
        ("CPU variant", "variant "),
        ("CPU revision", "revision "),
    ]
    .into_iter()
    .filter_map(|(key, label)| Some(format!("{label}{}", first(key)?)))
    .collect();
    let detail = detail.join(" ");
    match (first("model name"), detail.as_str()) {
        (Some(name), "") => Some(name.to_owned()),
        (Some(name), detail) => Some(format!("{name} ({detail})")),
        (None, "") => None,
        (None, detail) => Some(detail.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn x86_siblings_are_one_core() {
        let one = |processor: usize, core: usize, mhz: f64| {
            format!(
                "processor\t: {processor}\nvendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 143\n\
                 model name\t: Intel(R) Xeon(R) Platinum 8481C\nstepping\t: 8\ncpu MHz\t\t: {mhz}\n\
                 physical id\t: 0\ncore id\t\t: {core}\nflags\t\t: fpu avx2\n\n"
            )
        };
        let text = one(0, 0, 2700.0) + &one(1, 0, 3100.5) + &one(2, 1, 2700.0);
        assert_eq!(
            Info::parse(&text),
            Info {
                model: Some(
                    "Intel(R) Xeon(R) Platinum 8481C (GenuineIntel family 6 model 143 stepping 8)"
                        .into()
                ),
                logical_processors: Some(3),
                physical_cores: Some(2),
                clock_mhz: Some(3100.5),
            }
        );
    }

    #[test]
    fn arm_has_numbers_and_no_name() {
        let text = "processor\t: 0\nBogoMIPS\t: 50.00\nCPU implementer\t: 0x41\nCPU architecture: 8\n\
                    CPU variant\t: 0x1\nCPU part\t: 0xd40\nCPU revision\t: 1\n";
        let info = Info::parse(text);
        assert_eq!(
            info.model.as_deref(),
            Some("implementer 0x41 part 0xd40 variant 0x1 revision 1")
        );
        assert_eq!((info.logical_processors, info.physical_cores), (Some(1), None));
    }

    #[test]
    fn nothing_is_made_up() {
        assert_eq!(Info::parse(""), Info::default());
    }
}
