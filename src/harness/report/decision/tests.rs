//! The decision page on a made-up record.

use super::render_decision;
use crate::backend::DeviceKind;
use crate::harness::records::{BuildRecord, MachineRecord};
use crate::harness::scenario::testing::{lines, plan};
use crate::harness::scenario::{
    Bound, Decision, ErrorRateSpec, Line, SCENARIO_RECORD_VERSION, ScenarioFacts, ScenarioKind,
    ScenarioRecord, ScenarioRun,
};
use crate::harness::spec::Track;

fn record(question: &str, lines: Vec<Line>) -> ScenarioRun {
    let scenario = ScenarioFacts {
        question: question.into(),
        track: Track::Performance,
        path: "scenarios/made-up.yaml".into(),
        text: "scenario: made-up\n".into(),
        spec_digest: "0".repeat(64),
        device: DeviceKind::Cpu,
        model: "synthetic".into(),
        set: Default::default(),
        differs_in: Default::default(),
        bound: Some(Bound::MemoryBandwidth),
        error_rates: None,
        expected: Some(Decision::Admit),
    };
    let machine = MachineRecord {
        cpu: Some("made-up processor".into()),
        architecture: "x86_64".into(),
        instruction_sets: vec!["avx2".into()],
        usable_processors: 2,
        memory_bytes: Some(1 << 34),
        system: None,
        kernel: None,
        host: None,
    };
    let run = ScenarioRecord {
        schema_version: SCENARIO_RECORD_VERSION,
        kind: ScenarioKind::ScenarioRun,
        run_id: "20310509-140359-made-up".into(),
        command: vec!["assay".into()],
        started: "2031-05-09T14:03:59Z".into(),
        finished: Some("2031-05-09T14:08:11Z".into()),
        build: BuildRecord::current(),
        machine,
        scenario,
        plan: plan(1.25),
        gates: Vec::new(),
        arms: Default::default(),
        refusals: Vec::new(),
        parts: 1,
        last_line: None,
    };
    ScenarioRun { run, lines }
}

#[test]
fn the_verdict_is_a_word_and_the_page_is_the_same_twice() {
    let record = record("Is it faster?", lines(20, |_| 1.4));
    let page = render_decision(&record);
    assert!(page.contains("<p class=\"word\">Admit</p>"), "{page}");
    assert!(page.contains("as expected"));
    assert_eq!(page, render_decision(&record));
    // Through the record's own file format as well.
    let text = serde_json::to_string(&record).unwrap();
    let again: ScenarioRun = serde_json::from_str(&text).unwrap();
    assert_eq!(page, render_decision(&again));
}

#[test]
fn every_sample_is_drawn() {
    let page = render_decision(&record("Is it faster?", lines(20, |_| 1.4)));
    let circles = page.matches("<circle").count();
    // 80 samples by arm and in run order, 20 ratios, 60 readings, the estimate, two legend dots.
    assert_eq!(circles, 80 + 80 + 20 + 60 + 1 + 2);
}

#[test]
fn markup_from_records_is_inert() {
    let hostile = "</title><img src=x onerror=alert(1)><script>alert(1)</script>";
    let mut record = record(hostile, lines(20, |_| 1.4));
    record.run.scenario.model = hostile.into();
    record.run.machine.cpu = Some(hostile.into());
    record.run.plan.scenario = hostile.into();
    record.run.scenario.text = hostile.into();
    let page = render_decision(&record);
    assert!(!page.contains("<img") && !page.contains("<script"), "{page}");
    assert!(
        !page.contains("http://")
            || !page.replace("http://www.w3.org/2000/svg", "").contains("http://")
    );
}

#[test]
fn a_run_without_samples_still_has_a_page() {
    let page = render_decision(&record("Is it faster?", Vec::new()));
    assert!(page.contains("<p class=\"word\">Invalid</p>"));
    assert!(page.contains("expected admit"));
}

#[test]
fn error_rates_are_resampled_from_the_record_and_shown() {
    let mut record = record("Are they the same?", lines(400, |_| 1.0));
    record.run.scenario.error_rates = Some(ErrorRateSpec {
        pseudo_runs: 1000,
        quads: vec![20],
        launches: 4,
        slowdown_ratio: 0.02,
    });
    let rates = record.error_rates().unwrap().unwrap();
    assert_eq!((rates.series_quads, rates.at_threshold.admitted.trials), (400, 1000));
    assert!(rates.at_threshold.admitted.lower <= 0.005 && rates.slowed.declined.share() > 0.9);
    assert!(render_decision(&record).contains("How often this procedure errs here"));
    // A series that is too short is said, not guessed from.
    record.lines.truncate(100);
    assert!(record.error_rates().unwrap().unwrap_err().contains("at least 400 quads"));
    assert!(render_decision(&record).contains("at least 400 quads"));
}
