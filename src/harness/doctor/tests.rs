//! Findings are a pure function of facts.

use super::{CudaFacts, Facts, State, findings};
use crate::units::{BUILD, Build, Cpu, Machine, Memory, System};

fn facts() -> Facts {
    Facts {
        machine: Machine {
            cpu: Cpu {
                model: Some("A processor (maker family 1 model 2 stepping 3)".into()),
                architecture: "x86_64",
                instruction_sets: vec!["sse2", "avx2"],
                logical_processors: Some(8),
                physical_cores: Some(4),
                usable_processors: 8,
                clock_mhz: Some(2400.0),
                governor: Some("performance".into()),
            },
            memory: Memory {
                total_bytes: Some(16 << 30),
                available_bytes: Some(8 << 30),
                limit_bytes: None,
            },
            system: System { family: "linux", name: None, kernel: None, host: None },
        },
        build: Build {
            git_revision: "0123456789abcdef0123456789abcdef01234567",
            git_dirty: Some(false),
            opt_level: "3",
            ..BUILD
        },
        kernels: "avx2".into(),
        cuda: CudaFacts {
            devices: Ok(Vec::new()),
            driver_found: false,
            compiler: Ok("NVRTC 13.0".into()),
            blas: Ok("cuBLASLt 13.0".into()),
            cache: Some("/cache".into()),
        },
    }
}

/// State and text of the finding about a topic.
fn about(facts: &Facts, topic: &str) -> (State, String) {
    let found = findings(facts).into_iter().find(|f| f.topic == topic).unwrap();
    (found.state, [Some(found.found), found.costs, found.remedy].into_iter().flatten().collect())
}

#[test]
fn a_good_machine_lacks_a_gpu_only() {
    let found = findings(&facts());
    let other: Vec<&str> = found.iter().filter(|f| f.state != State::Ok).map(|f| f.topic).collect();
    assert_eq!(other, ["gpu"]);
    assert!(found.iter().all(|f| f.state == State::Ok || f.costs.is_some()), "{found:#?}");
}

#[test]
fn every_restriction_is_told() {
    let mut limited = facts();
    limited.machine.cpu.usable_processors = 2;
    limited.machine.cpu.governor = Some("powersave".into());
    limited.machine.cpu.model = None;
    limited.machine.memory.limit_bytes = Some(2 << 30);
    limited.build.git_dirty = Some(true);
    limited.build.opt_level = "0";
    limited.kernels = "portable".into();
    limited.cuda.devices = Err("the driver is older than this library".into());
    limited.cuda.cache = None;
    for (topic, state, says) in [
        ("processor", State::Unavailable, "strict comparisons"),
        ("cores", State::Limited, "2 usable here"),
        ("instructions", State::Limited, "4 lanes"),
        ("clock", State::Limited, "powersave"),
        ("memory", State::Limited, "2.0 GiB of 16.0 GiB"),
        ("build", State::Limited, "0123456789ab, modified"),
        ("compiler", State::Limited, "not vectorised"),
        ("gpu", State::Unavailable, "older than this library"),
        ("kernel cache", State::Missing, "ASSAY_KERNEL_CACHE"),
    ] {
        let (found, text) = about(&limited, topic);
        assert_eq!(found, state, "{topic}");
        assert!(text.contains(says), "{topic}: {text}");
    }
    limited.build.git_dirty = None;
    limited.build.git_revision = "unavailable";
    limited.build.git_note = "git does not start";
    let (state, text) = about(&limited, "build");
    assert_eq!(state, State::Unavailable);
    assert!(text.contains("git does not start"), "{text}");
}
