//! Error rates of made-up campaigns: clean, too loose, with real runs that disagree.

use super::testing::{plan, seeded_lines};
use super::*;
use crate::backend::DeviceKind;
use crate::harness::records::{BuildRecord, MachineRecord};
use crate::harness::spec::Track;

fn spec() -> ErrorRateSpec {
    ErrorRateSpec {
        series_quads: 400,
        series_parts: 1,
        pseudo_runs: 1000,
        real_runs: 30,
        quads: vec![20, 40, 80],
        launches: 4,
        slowdown_ratio: 0.02,
        at_most: 0.01,
        missed_at_most: 0.05,
    }
}

/// A campaign whose real and slowed runs have these true ratios.
pub(in crate::harness) fn campaign(real_ratio: f64, slowed_ratio: f64) -> ErrorRun {
    let mut real = plan(1.0);
    real.metrics = vec![Metric::DecodeTokensPerSecond];
    let mut series = real.clone();
    series.looks.quads = vec![400];
    let mut lines = Vec::new();
    let mut add = |of: String, new: Vec<Line>| {
        lines.extend(new.into_iter().map(|line| NamedLine { of: of.clone(), line }));
    };
    add("series-001".into(), seeded_lines(1, 400, |_| 1.0));
    for i in 1..=30 {
        add(format!("real-{i:03}"), seeded_lines(100 + i, 80, |_| real_ratio));
        add(format!("slowed-{i:03}"), seeded_lines(200 + i, 80, |_| slowed_ratio));
    }
    let run = CampaignRecord {
        schema_version: CAMPAIGN_VERSION,
        kind: CampaignKind::ErrorRates,
        run_id: "20310509t140359z-aa-cpu-error-rates".into(),
        command: vec!["assay".into()],
        started: "2031-05-09T14:03:59Z".into(),
        finished: "2031-05-09T14:33:59Z".into(),
        build: BuildRecord::current(),
        machine: MachineRecord::current(),
        device_name: None,
        scenario: ScenarioFacts {
            question: "Are they the same?".into(),
            track: Track::Performance,
            path: "scenarios/aa-cpu.yaml".into(),
            text: "scenario: aa-cpu\n".into(),
            spec_digest: "0".repeat(64),
            device: DeviceKind::Cpu,
            model: "synthetic".into(),
            model_digest: None,
            set: Default::default(),
            differs_in: Default::default(),
            bound: None,
            error_rates: None,
            expected: None,
        },
        gates: Vec::new(),
        spec: spec(),
        plans: Plans { series, slowed: real.clone(), real },
        refusals: Default::default(),
        elapsed_ms: 0,
    };
    ErrorRun { run, lines }
}

#[test]
fn a_clean_campaign_holds() {
    let run = campaign(1.0, 0.98);
    let errors = run.errors().unwrap();
    assert!(errors.problems.is_empty(), "{:?}", errors.problems);
    assert_eq!(errors.resampled.series_quads, 400);
    assert_eq!(errors.real.admitted.trials, 30);
    assert!(errors.resampled.at_threshold.admitted.share() <= 0.01);
    assert!(errors.slowed.declined.count >= 29, "{:?}", errors.slowed);
    let summary = run.summary().unwrap();
    assert!(summary.holds && summary.missed.real <= 1 && summary.real_runs == 30);
    // Through the record's own file format as well.
    let text = serde_json::to_string(&run).unwrap();
    assert_eq!(serde_json::from_str::<ErrorRun>(&text).unwrap(), run);
}

#[test]
fn real_runs_that_disagree_with_the_resampled_ones_are_a_problem() {
    // Planted: one of two arms that should be the same is faster.
    let errors = campaign(1.02, 0.98).errors().unwrap();
    assert!(errors.problems.iter().any(|p| p.contains("false admits")), "{:?}", errors.problems);
    assert!(errors.problems.iter().any(|p| p.contains("30 of 30 real runs")));
}

#[test]
fn slowdowns_that_are_missed_are_a_problem() {
    // Planted: the injected slowdown does not slow anything down.
    let run = campaign(1.0, 1.0);
    let errors = run.errors().unwrap();
    assert!(errors.problems.iter().any(|p| p.contains("missed slowdowns of real runs")));
    assert!(!run.summary().unwrap().holds);
}

#[test]
fn refused_runs_count_as_misses_and_never_as_decisions() {
    let mut run = campaign(1.0, 0.98);
    for i in 1..=30 {
        run.run.refusals.insert(format!("slowed-{i:03}"), vec!["throttled".into()]);
    }
    let errors = run.errors().unwrap();
    assert_eq!(errors.slowed.inconclusive.count, 30);
    assert!(!errors.problems.is_empty());
}

#[test]
fn a_campaign_without_a_part_or_with_a_short_series_has_no_rates() {
    let mut run = campaign(1.0, 0.98);
    run.lines.retain(|l| l.of != "series-001");
    assert!(run.errors().unwrap_err().contains("there is no series"));
    let mut run = campaign(1.0, 0.98);
    run.lines.retain(|l| !l.of.starts_with("real"));
    assert!(run.errors().unwrap_err().contains("no real runs"));
    let mut run = campaign(1.0, 0.98);
    let mut quads = 0;
    run.lines.retain(|l| {
        quads += usize::from(l.of == "series-001" && matches!(l.line, Line::Quad(_)));
        l.of != "series-001" || quads < 300
    });
    assert!(run.errors().unwrap_err().contains("at least 400 quads"));
}

#[test]
fn a_series_in_parts_has_the_rates_of_the_whole() {
    let whole = campaign(1.0, 0.98);
    let mut parts = whole.clone();
    // Launches 0 to 39 stay, 40 to 79 become launches 0 to 39 of a second part.
    for NamedLine { of, line } in &mut parts.lines {
        let (Line::Launch(Launch { launch, .. })
        | Line::Quad(QuadLine { launch, .. })
        | Line::LaunchEnd(LaunchEnd { launch, .. })) = line;
        if of == "series-001" && *launch >= 40 {
            *launch -= 40;
            *of = "series-002".into();
        }
    }
    assert_eq!(parts.errors().unwrap().resampled, whole.errors().unwrap().resampled);
}

#[test]
fn the_latest_campaign_on_a_machine_like_this_is_found() {
    let folder = tempfile::tempdir().unwrap();
    let store = |name: &str, run: &ErrorRun| {
        let home = folder.path().join(name);
        std::fs::create_dir_all(&home).unwrap();
        let text = serde_json::to_string_pretty(run).unwrap();
        std::fs::write(home.join("record.json"), text).unwrap();
    };
    let folders = [folder.path().to_owned()];
    assert_eq!(established(&folders, DeviceKind::Cpu), None);
    let mut old = campaign(1.0, 0.98);
    store("old", &old);
    old.run.run_id = "newer".into();
    old.run.started = "2031-06-01T00:00:00Z".into();
    store("newer", &old);
    old.run.machine.cpu = Some("another processor".into());
    old.run.started = "2031-07-01T00:00:00Z".into();
    store("elsewhere", &old);
    std::fs::create_dir(folder.path().join("other")).unwrap();
    std::fs::write(folder.path().join("other/record.json"), "{}").unwrap();
    assert_eq!(established(&folders, DeviceKind::Cpu).unwrap().run_id, "newer");
    assert_eq!(established(&folders, DeviceKind::Cuda), None);
}
