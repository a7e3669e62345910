//! The kind can fail: planted differences in outputs and state, and values that are not finite.

use super::execute::{Execution, execute};
use super::gate::compare;
use super::schedule;
use super::subject::Subject;
use crate::backend::{DeviceKind, Policy, Region};
use crate::harness::Verdict;
use crate::harness::inventory::{ExecutionCase, RegionVerdict};
use crate::harness::kind::Cell;
use crate::harness::spec::Tolerance;
use crate::harness::testing::problems;

fn executed(case: ExecutionCase) -> Execution {
    let axes = [("gdn", "2x4x16x16"), ("tokens", "130")];
    let cell = Cell {
        device: DeviceKind::Cpu,
        policy: Some(Policy::Reference),
        case: None,
        axes: axes.map(|(k, v)| (k.to_owned(), v.to_owned())).to_vec(),
    };
    let subject = Subject::new(Region::GdnCore, &cell, 1).unwrap();
    execute(&subject, schedule::of(case, &subject)).unwrap()
}

#[test]
fn real_executions_agree_and_planted_differences_do_not_pass() {
    let canonical = executed(ExecutionCase::CANONICAL);
    let split = executed(ExecutionCase::SplitPrefill);
    let verdict_of =
        |found: &Execution| compare(&RegionVerdict::Exact, &canonical, found).unwrap().verdict;
    assert_eq!(verdict_of(&split), Verdict::Pass);
    assert!(split.outputs.iter().any(|x| x.abs() > 0.1), "outputs are not trivial");

    let mut last_bit = executed(ExecutionCase::SplitPrefill);
    let at = last_bit.outputs.len() / 2;
    last_bit.outputs[at] = f32::from_bits(last_bit.outputs[at].to_bits() ^ 1);
    assert_eq!(verdict_of(&last_bit), Verdict::Fail);

    let mut state = executed(ExecutionCase::SplitPrefill);
    state.state[0].values[3] += 1e-9;
    assert_eq!(verdict_of(&state), Verdict::Fail);

    let mut nan = executed(ExecutionCase::SplitPrefill);
    nan.outputs[0] = f32::NAN;
    assert_eq!(verdict_of(&nan), Verdict::Fail);
    let both = compare(&RegionVerdict::Exact, &nan, &nan).unwrap();
    assert_eq!(both.verdict, Verdict::Fail, "equal NaNs are no agreement");
}

#[test]
fn an_exception_has_bounds_and_reports_zero() {
    let canonical = executed(ExecutionCase::CANONICAL);
    let exception = RegionVerdict::Exception {
        bounds: Tolerance { max_abs: Some(1e-3), ..Tolerance::default() },
        shapes: String::new(),
        architecture: String::new(),
        state: String::new(),
        why: String::new(),
    };
    let same = compare(&exception, &canonical, &canonical).unwrap();
    assert!(same.message.contains("ready for review"), "{}", same.message);
    let mut far = executed(ExecutionCase::CANONICAL);
    far.outputs[0] += 0.01;
    assert_eq!(compare(&exception, &canonical, &far).unwrap().verdict, Verdict::Fail);
}

#[test]
fn a_matrix_with_the_wrong_axes_does_not_plan() {
    let gate = "gate: t\nclaim: c\ntrack: contract\nkind: region_invariance\nregion: gemm\n\
                cases: [decode]\nmatrix: { k: [64], tokens: [3] }\nexpect: inventory\n";
    let planned = std::panic::catch_unwind(|| problems(gate));
    let message = *planned.unwrap_err().downcast::<String>().unwrap();
    assert!(message.contains("axis `n` is missing"), "{message}");
}

/// Every region of the engine has a gate, and the smallest cells of each hold here already.
#[test]
fn every_region_has_a_shipped_gate() {
    let folder = crate::harness::testing::root().join("gates/regions");
    for region in Region::ALL {
        let name = region.name().replace('_', "-");
        let path = folder.join(format!("{name}-invariance.yaml"));
        let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{name}: {e}"));
        assert!(text.contains(&format!("region: {region}\n")), "{name}");
    }
}
