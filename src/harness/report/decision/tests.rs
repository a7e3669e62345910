//! The decision page on a made-up record.

use super::render_decision;
use crate::backend::DeviceKind;
use crate::harness::records::{BuildRecord, MachineRecord};
use crate::harness::scenario::testing::{lines, plan};
use crate::harness::scenario::{
    Bound, Decision, ErrorSummary, Line, PeerOutput, PeerRecord, Procedure, Rate,
    SCENARIO_RECORD_VERSION, ScenarioFacts, ScenarioKind, ScenarioRecord, ScenarioRun, Turn,
};
use crate::harness::spec::Track;
use crate::harness::stats::LookPlan;

fn record(question: &str, lines: Vec<Line>) -> ScenarioRun {
    let scenario = ScenarioFacts {
        question: question.into(),
        track: Track::Performance,
        path: "scenarios/made-up.yaml".into(),
        text: "scenario: made-up\n".into(),
        spec_digest: "0".repeat(64),
        device: DeviceKind::Cpu,
        model: "synthetic".into(),
        model_digest: None,
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
        peers: Default::default(),
        beside: Default::default(),
        quality: None,
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
fn a_decision_becomes_junit_and_markdown() {
    let folder = tempfile::tempdir().unwrap();
    let write = |record: &ScenarioRun| {
        let text = serde_json::to_string(record).unwrap();
        std::fs::write(folder.path().join("record.json"), text).unwrap();
        let files = super::super::files::junit_of(folder.path()).unwrap();
        (files, super::super::files::markdown_of(folder.path()).unwrap())
    };
    let (junit, markdown) = write(&record("Is it <faster>?", lines(20, |_| 1.4)));
    assert!(junit.contains("tests=\"1\" failures=\"0\" errors=\"0\""), "{junit}");
    assert!(markdown.starts_with("### Assay decision: made-up: **admit** (as expected)"));
    assert!(markdown.contains("Is it &lt;faster&gt;?"), "{markdown}");
    let (junit, _) = write(&record("Is it faster?", lines(20, |_| 1.1)));
    assert!(junit.contains("<failure message=\"decline, expected admit\">"), "{junit}");
    let (junit, markdown) = write(&record("Is it faster?", lines(3, |_| 1.4)));
    assert!(
        junit.contains("<error message=\"invalid, expected admit\">too few samples"),
        "{junit}"
    );
    assert!(markdown.contains("- too few samples: 3 usable quads of 20"), "{markdown}");
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
fn error_rates_of_the_machine_are_shown_or_said_to_be_unknown() {
    let mut record = record("Is it faster?", lines(20, |_| 1.4));
    assert!(render_decision(&record).contains("Not established on this machine"));
    let rate = |share| Rate { share, lower: share / 2.0, upper: 0.0437, real: 3 };
    record.run.scenario.error_rates = Some(ErrorSummary {
        run_id: "20310509-error-rates".into(),
        started: "2031-05-09T14:03:59Z".into(),
        series_quads: 400,
        pseudo_runs: 1000,
        real_runs: 30,
        slowed_runs: 31,
        false_admit: rate(0.004),
        false_decline: rate(0.005),
        slowdown_ratio: 0.02,
        missed: rate(0.03),
        holds: true,
        procedure: Some(Procedure {
            model: "a model".into(),
            workload: "decode_tokens=12".into(),
            turn: Turn::Step,
            looks: LookPlan { quads: vec![32, 64], quads_per_launch: 2 },
        }),
    });
    let page = render_decision(&record);
    let procedure = "turns after every step, looks at 32, 64 quads, 2 a launch";
    let figures =
        ["20310509-error-rates", "3 of 30", "3 of 31", "4.37%", "400 A/A quads", procedure];
    for words in figures {
        assert!(page.contains(words), "{words}");
    }
    assert!(!page.contains("exceeds its limit"));
}

/// A record with a live peer whose quads say that it is 1.5 times as fast.
fn with_peer(weights_from: Option<&str>) -> ScenarioRun {
    let mut record = record("Is it faster?", lines(20, |_| 1.4));
    record.run.plan.peers = vec!["other".into()];
    let mut peers = lines(20, |_| 1.5);
    peers.retain(|l| matches!(l, Line::Quad(_)));
    for line in &mut peers {
        if let Line::Quad(q) = line {
            q.arm = "other".into();
            q.samples[1].tokens = "theirs".into();
            q.samples[2].tokens = "theirs".into();
        }
    }
    record.lines.extend(peers);
    record.run.scenario.model_digest = Some("ab".repeat(32));
    let peer = PeerRecord {
        command: vec!["other".into()],
        name: Some("other engine 1.0".into()),
        weights_from: weights_from.map(str::to_owned),
        output: Some(PeerOutput::Tokens),
        ..PeerRecord::default()
    };
    record.run.peers.insert("other".into(), peer);
    record
}

#[test]
fn a_live_peer_has_a_peer_ratio_and_decides_nothing() {
    let alone = record("Is it faster?", lines(20, |_| 1.4)).verdict();
    let record = with_peer(Some(&"ab".repeat(32)));
    let verdict = record.verdict();
    assert_eq!((verdict.decision, verdict.quads), (alone.decision, alone.quads));
    assert!(verdict.comparisons.iter().all(|c| c.arm != "other"), "no plain ratio");
    let ratios = record.peer_ratios("other").unwrap();
    let decode = &ratios[0].estimate;
    assert!((decode.log_ratio.exp() - 1.5).abs() < 0.02 && ratios[0].rules.is_empty());
    let page = render_decision(&record);
    let shown = format!("peer ratio {:.3}", decode.log_ratio.exp());
    assert!(page.contains(&shown) && page.contains("other engine 1.0"), "{shown}");
}

#[test]
fn a_peer_without_the_same_weights_has_no_ratio() {
    for (weights, words) in
        [(None, "declares no digest"), (Some("cd"), "weights come from another folder")]
    {
        let record = with_peer(weights);
        assert!(record.peer_ratios("other").unwrap_err().contains(words));
        let page = render_decision(&record);
        assert!(page.contains(words) && !page.contains("peer ratio 1"), "{words}");
        assert!(page.contains("Live peer other"), "its times are shown");
    }
    let mut record = with_peer(Some(&"ab".repeat(32)));
    record.run.peers.get_mut("other").unwrap().problem = Some("it ended early".into());
    assert_eq!(record.peer_ratios("other").unwrap_err(), "it ended early");
    record.run.scenario.model_digest = None;
    assert!(render_decision(&record).contains("No peer ratio: it ended early"));
}
