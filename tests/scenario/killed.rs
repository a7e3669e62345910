//! A run whose process is killed, and goes on.

use crate::beside;
use assay::harness::scenario::load_scenario_run;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const GATE: &str = "\
gate: probe
claim: The probe does what it is told.
track: resource
kind: runner_probe
behaviour: [pass]
";

const SCENARIO: &str = "\
scenario: tiny
question: Is `reference` as fast as `f32` on a tiny model?
track: performance
gates: [probe]
profiles:
  cpu: { model: { dir: FIXTURE } }
workload: { prompt_tokens: 4, decode_tokens: 3 }
arms:
  baseline: { policy: f32, threads: 1 }
  candidate: { policy: reference, threads: 1 }
differs_in: [numerical_policy]
measure:
  warmup: 2
  quads: [12]
  launches: 2
  metrics: [decode_tokens_per_second]
admit_when:
  all:
    - { ratio: decode_tokens_per_second, lower_bound_at_least: 0.2 }
";

/// `assay scenario run` in a project.
fn scenario_run(project: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_assay"));
    command.current_dir(project).args(["scenario", "run", "--quiet"]).args(arguments);
    command
}

/// The lines that have their end.
fn whole(samples: &str) -> &str {
    &samples[..samples.rfind('\n').map_or(0, |at| at + 1)]
}

fn quads(lines: &str) -> Vec<&str> {
    lines.lines().filter(|line| line.contains(r#""line":"quad""#)).collect()
}

/// The folder of the run, once a quad is recorded in it.
fn with_a_quad(results: &Path) -> PathBuf {
    let begun = Instant::now();
    loop {
        for entry in std::fs::read_dir(results).into_iter().flatten().flatten() {
            let samples = std::fs::read_to_string(entry.path().join("samples.jsonl"));
            if !quads(whole(&samples.unwrap_or_default())).is_empty() {
                return entry.path();
            }
        }
        assert!(begun.elapsed() < Duration::from_secs(300), "no quad appears");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_killed_scenario_loses_no_quad() {
    let project = tempfile::tempdir().unwrap();
    let fixture = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/llama");
    let scenario = SCENARIO.replace("FIXTURE", &fixture.display().to_string());
    for (name, text) in [("gates/probe.yaml", GATE), ("scenarios/tiny.yaml", scenario.as_str())] {
        let path = project.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    let _beside = beside();
    let mut child = scenario_run(project.path(), &["scenarios/tiny.yaml", "--device", "cpu"])
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let partial = with_a_quad(&project.path().join("results"));
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(partial.to_string_lossy().ends_with(".partial"), "{}", partial.display());
    let samples = partial.join("samples.jsonl");
    let before = std::fs::read_to_string(&samples).expect("killed before it was finished");
    let before = whole(&before);
    // As if the kill had come in the midst of a line.
    std::fs::write(&samples, format!("{before}{{\"line\":\"quad\",\"laun")).unwrap();

    let resume = ["--resume", partial.to_str().unwrap()];
    let output = scenario_run(project.path(), &resume).output().unwrap();
    // The decision depends on how quiet the machine is; that there is one does not.
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(matches!(output.status.code(), Some(0 | 1 | 4)), "{told}");
    assert!(!partial.exists(), "{told}");
    let done = partial.with_extension("");
    let after = std::fs::read_to_string(done.join("samples.jsonl")).unwrap();
    assert!(after.starts_with(before), "recorded lines are kept as they are");
    let all = quads(&after);
    assert!(all.len() > quads(before).len(), "killed too late to show anything");
    for quad in quads(before) {
        assert_eq!(all.iter().filter(|line| **line == quad).count(), 1, "{quad}");
    }
    assert_eq!(load_scenario_run(&done).unwrap().content.run.parts, 2);
}
