//! Two made-up runs, compared.

use super::gates::compare_gate_runs;
use super::{Change, Found, render_comparison};
use crate::backend::DeviceKind;
use crate::harness::kind::{Cell, Outcome, Verdict};
use crate::harness::records::{GateRun, TrialRecord};
use crate::harness::report::testing::gate_run;
use crate::units::Exit;

fn trial(gate: &str, case: &str, outcome: Outcome) -> TrialRecord {
    let cell =
        Cell { device: DeviceKind::Cpu, policy: None, case: Some(case.into()), axes: vec![] };
    TrialRecord::new(&format!("{gate}/cpu/{case}"), gate, &cell, outcome, "digest")
}

fn run(id: &str, trials: Vec<TrialRecord>) -> GateRun {
    gate_run(id, trials)
}

#[test]
fn every_change_has_its_direction() {
    let measured = || Outcome::new(Verdict::Measured, "a number");
    let left = run(
        "left",
        vec![
            trial("g", "broken", Outcome::pass("")),
            trial("g", "fixed", Outcome::fail("was wrong")),
            trial("g", "gone", Outcome::pass("")),
            trial("g", "lost", Outcome::pass("")),
            trial("g", "moved", Outcome::pass("").with("rms", 1.0)),
            trial("g", "crash", Outcome::fail("")),
            trial("g", "claimed", measured()),
            trial("h", "alone", Outcome::pass("")),
        ],
    );
    let right = run(
        "right",
        vec![
            trial("g", "broken", Outcome::fail("now <b>wrong</b>")),
            trial("g", "fixed", Outcome::pass("")),
            trial("g", "lost", Outcome::new(Verdict::Skip, "needs cuda")),
            trial("g", "moved", Outcome::pass("").with("rms", 2.0)),
            trial("g", "crash", Outcome::error("")),
            trial("g", "claimed", Outcome::pass("")),
            trial("g", "new", Outcome::fail("new and wrong")),
        ],
    );
    let comparison = compare_gate_runs(&left, &right);
    let Found::GateRuns(found) = &comparison.found else { panic!("two gate runs") };
    let of = |wanted: Change| -> Vec<&str> {
        let some = found.changes.iter().filter(|c| c.change == wanted);
        some.map(|c| c.name.trim_start_matches("g/cpu/")).collect()
    };
    assert_eq!(of(Change::Worse), ["broken", "gone", "lost", "new"]);
    assert_eq!(of(Change::Better), ["claimed", "fixed"]);
    assert_eq!(of(Change::Other), ["crash"]);
    assert_eq!((found.same, found.evidence.len()), (1, 1));
    assert_eq!(found.evidence[0].field, "rms");
    // A gate that only one run selected is no loss.
    assert_eq!(found.only_left.get("h"), Some(&1));
    assert_eq!((comparison.word(), comparison.exit()), ("worse", Exit::Fail));
    let page = render_comparison(&comparison);
    assert!(page.contains("<p class=\"word\">Worse</p>"), "{page}");
    assert!(page.contains("now &lt;b&gt;wrong&lt;/b&gt;") && !page.contains("<b>wrong"), "{page}");
    assert_eq!(page, render_comparison(&comparison));
}

#[test]
fn a_run_is_as_good_as_itself() {
    let one =
        run("one", vec![trial("g", "a", Outcome::pass("")), trial("g", "b", Outcome::fail(""))]);
    let comparison = compare_gate_runs(&one, &one.clone());
    assert_eq!((comparison.word(), comparison.exit()), ("same", Exit::Success));
    assert!(comparison.facts.is_empty(), "{:?}", comparison.facts);
}

#[test]
fn another_machine_build_and_file_are_named() {
    let left = run("left", vec![trial("g", "a", Outcome::pass(""))]);
    let mut right = left.clone();
    right.run.machine.cpu = Some("another processor".into());
    right.run.build.git_revision = "0123456789ab".into();
    right.run.gates[0].spec_digest = "other".into();
    let comparison = compare_gate_runs(&left, &right);
    let names: Vec<&str> = comparison.facts.iter().map(|f| f.name.as_str()).collect();
    assert_eq!(names, ["revision", "processor", "file of gate g"]);
}
