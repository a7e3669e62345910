//! The kind can fail: one bit in logits, activations or states, a missing part, a plan that says
//! otherwise, ids that do not move or move too far.

use super::identity::decide;
use super::trace::{Trace, compare};
use crate::harness::kind::Verdict;
use crate::harness::spec::{Check, Tolerance};
use crate::harness::testing::{gate, problems, root};

fn trace(change: impl FnOnce(&mut Trace)) -> Trace {
    let mut trace = Trace {
        logits: (0..12).map(|i| i as f32).collect(),
        taps: vec![("embed".to_owned(), vec![0.5, -0.25]), ("layers.0.out".to_owned(), vec![1.0])],
        states: vec![("own.attention.0.k".to_owned(), vec![0.125])],
    };
    change(&mut trace);
    trace
}

#[test]
fn one_bit_anywhere_fails() {
    let verdict =
        |change: fn(&mut Trace)| compare(&trace(|_| ()), &trace(change), &Check::Bitwise).verdict;
    assert_eq!(verdict(|_| ()), Verdict::Pass);
    assert_eq!(verdict(|t| t.logits[7] = 7.000_001), Verdict::Fail);
    assert_eq!(verdict(|t| t.logits.truncate(8)), Verdict::Fail);
    assert_eq!(verdict(|t| t.taps[0].1[1] = -0.250_000_03), Verdict::Fail);
    assert_eq!(verdict(|t| t.taps.truncate(1)), Verdict::Fail);
    assert_eq!(verdict(|t| t.taps.clear()), Verdict::Fail);
    assert_eq!(verdict(|t| t.states[0].1[0] = 0.0), Verdict::Fail);
    assert_eq!(verdict(|t| t.states.clear()), Verdict::Fail);
    assert_eq!(verdict(|t| t.states.push(("own.more".into(), vec![]))), Verdict::Fail);
    let nan = trace(|t| t.logits[0] = f32::NAN);
    assert_eq!(compare(&nan, &nan, &Check::Bitwise).verdict, Verdict::Fail, "NaN never passes");
    let silent = trace(|t| t.taps.clear());
    assert_eq!(compare(&silent, &silent, &Check::Bitwise).verdict, Verdict::Fail);
}

#[test]
fn bounds_hold_where_bits_may_differ() {
    let bounds = Check::Tolerance(Tolerance { max_abs: Some(1e-2), ..Tolerance::default() });
    let verdict = |change: fn(&mut Trace)| compare(&trace(|_| ()), &trace(change), &bounds).verdict;
    assert_eq!(verdict(|t| t.logits[3] = 3.005), Verdict::Pass);
    assert_eq!(verdict(|t| t.logits[3] = 3.02), Verdict::Fail);
    assert_eq!(verdict(|_| ()), Verdict::Pass, "a plan that promises no bits, and all are equal");
    assert_eq!(verdict(|t| t.logits[0] = f32::NAN), Verdict::Fail);
}

#[test]
fn ids_move_as_the_plan_says() {
    let off = ["mlp_down".to_owned()];
    assert_eq!(decide(&["deployment"], &[]).verdict, Verdict::Pass);
    assert_eq!(decide(&["numerical_policy", "deployment"], &off).verdict, Verdict::Pass);
    assert_eq!(decide(&["deployment"], &off).verdict, Verdict::Fail);
    assert_eq!(decide(&["numerical_policy", "deployment"], &[]).verdict, Verdict::Fail);
    assert_eq!(decide(&[], &[]).verdict, Verdict::Fail);
}

#[test]
fn expectations_and_plans_must_agree() {
    let found = |model: &str, expect: &str| {
        problems(&format!(
            "gate: t\nclaim: c\ntrack: contract\nkind: placement_equivalence\npolicy: [f32]\n\
             model: {{ synth: {{ descriptor: ../{model}, seed: 7 }} }}\nplacements: [{{ tp: 2 }}]\n\
             prompt_tokens: 9\nexpect: [{{ then: {expect} }}]\n"
        ))
    };
    let parallel = "tests/fixtures/parallel/llama";
    assert_eq!(found(parallel, "bitwise"), [""; 0]);
    assert!(found(parallel, "{ max_abs: 1 }")[0].contains("the plan says that a cut is a subtree"));
    let tiny = "descriptors/tiny-llama.json";
    assert_eq!(found(tiny, "{ max_abs: 1e-3 }"), [""; 0]);
    assert!(found(tiny, "bitwise")[0].contains("the plan says that a cut is no subtree"));
    assert!(found(tiny, "{ max_abs: 1e-12 }")[0].contains("max_abs is"));
}

#[test]
fn expectations_stand_where_something_reads_them() {
    let planned = |rest: &str| {
        let text = format!(
            "gate: t\nclaim: c\ntrack: contract\nkind: placement_equivalence\npolicy: [f32]\n\
             model: {{ dir: ../tests/fixtures/llama }}\nplacements: [{{ tp: 2 }}]\n\
             prompt_tokens: 9\n{rest}\n"
        );
        let scope = crate::harness::PlanScope {
            device: crate::backend::DeviceKind::Cpu,
            policy: None,
            long: false,
            root: root(),
            base: root(),
        };
        let cases = gate(&text).unwrap().kind.cases(&scope);
        cases.map(|cases| cases.len()).map_err(|fault| fault.message)
    };
    let bounds = "expect: [{ then: { max_abs: 1 } }]";
    assert_eq!(planned(bounds), Ok(3));
    assert_eq!(planned("checks: [state, identity]"), Ok(2));
    let unread = planned(&format!("checks: [state, identity]\n{bounds}")).unwrap_err();
    assert_eq!(unread, "nothing reads `expect`: `forward` is not among the checks");
    let missing = planned("checks: [forward]").unwrap_err();
    assert_eq!(missing, "`forward` needs `expect`: how logits must agree");
}
