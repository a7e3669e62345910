//! The kind can fail: planted differences in outputs and state, and values that are not finite.

use super::execute::{Execution, execute};
use super::gate::compare;
use super::reference::compared;
use super::schedule;
use super::subject::Subject;
use crate::backend::{DeviceKind, Policy, Region};
use crate::harness::Verdict;
use crate::harness::inventory::{ExecutionCase, RegionVerdict};
use crate::harness::kind::Cell;
use crate::harness::kinds::core_reference::{Bound, decide};
use crate::harness::spec::Tolerance;
use crate::harness::testing::problems;

fn executed(case: ExecutionCase) -> Execution {
    executed_region(Region::GdnCore, "gdn=2x4x16x16,tokens=130", case)
}

/// Executes a region under `reference`; `axes` as in trial names.
fn executed_region(region: Region, axes: &str, case: ExecutionCase) -> Execution {
    let axes = axes.split(',').filter_map(|axis| axis.split_once('='));
    let cell = Cell {
        device: DeviceKind::Cpu,
        policy: Some(Policy::Reference),
        case: None,
        axes: axes.map(|(k, v)| (k.to_owned(), v.to_owned())).collect(),
    };
    let subject = Subject::new(region, &cell, 1).unwrap();
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
    let optional = gate.replace("k: [64]", "k: [64], n: [8], window: [24]");
    let planned = std::panic::catch_unwind(|| problems(&optional));
    let message = *planned.unwrap_err().downcast::<String>().unwrap();
    assert!(message.contains("has no axis `window`; it has k, n, tokens"), "{message}");
}

/// An axis that may be left out means the same then as its common value, and another value another region.
#[test]
fn axes_that_may_be_left_out_reach_the_region() {
    let rope = "convention=interleaved,heads=2x1,head_dim=24,rotary_dim=8,tokens=9";
    let attention = "heads=2x1,head_dim=16,kv_tokens=40";
    for (region, shape, common, others) in [
        (Region::Rope, rope, "scaling=none", &["scaling=linear", "scaling=llama3", "scaling=yarn"]),
        (Region::Rope, rope, "offset=0", &["offset=8", "offset=15", "offset=16"]),
        (Region::AttentionCore, attention, "window=40", &["window=39", "window=24", "window=1"]),
        (Region::MoeShared, "width=5,tokens=3", "gated=true", &["gated=false"; 3]),
    ] {
        let outputs = |more: &str| {
            let axes = format!("{shape},{more}");
            executed_region(region, &axes, ExecutionCase::ChunkedPrefill).outputs
        };
        assert_eq!(outputs(""), outputs(common), "{common}");
        for other in others {
            assert_ne!(outputs(other), outputs(common), "{other}");
        }
    }
}

/// A value that is off by more than the bound fails, in an output or in the state; so does one that is no
/// number, and a state of other parts is an error.
#[test]
fn a_wrong_value_is_no_reference() {
    let planned = |bound: &str| {
        problems(&format!(
            "gate: t\nclaim: c\ntrack: reference\nkind: region_reference\nregion: gdn_core\n\
             requires: {{ device: cpu }}\npolicy: [reference]\ncases: [chunked_prefill, decode]\n\
             matrix: {{ gdn: [[2, 4, 16, 16]], tokens: [130] }}\n\
             expect: [{{ then: {{ max_relative: {bound} }} }}]\n"
        ))
    };
    assert!(planned("4e-3").is_empty(), "{:?}", planned("4e-3"));
    // The output is BF16: it is not right to seven digits.
    let strict = planned("1e-7");
    assert_eq!(strict.len(), 2, "{strict:?}");
    assert!(strict[0].contains("`output 0` differs by"), "{strict:?}");

    let right = executed(ExecutionCase::SplitPrefill);
    let problem = |found: Execution| {
        let expected = [executed(ExecutionCase::SplitPrefill)];
        let compared = compared(&expected, &[found])?;
        Ok::<_, String>(decide(&compared, &Bound { max_relative: 4e-3 }))
    };
    assert_eq!(problem(right).unwrap().verdict, Verdict::Pass);
    let mut output = executed(ExecutionCase::SplitPrefill);
    output.outputs[7] += 1.0;
    assert_eq!(problem(output).unwrap().verdict, Verdict::Fail);
    let mut nan = executed(ExecutionCase::SplitPrefill);
    nan.outputs[7] = f32::NAN;
    assert_eq!(problem(nan).unwrap().verdict, Verdict::Fail);
    let mut state = executed(ExecutionCase::SplitPrefill);
    let name = state.state[0].name.clone();
    state.state[0].values[3] += 100.0;
    let wrong = problem(state).unwrap();
    assert!(wrong.message.contains(&format!("`{name}` differs")), "{}", wrong.message);
    let mut lost = executed(ExecutionCase::SplitPrefill);
    lost.state.pop();
    assert!(problem(lost).is_err());
}

#[test]
fn chosen_ids_have_no_reference() {
    let gate = "gate: t\nclaim: c\ntrack: reference\nkind: region_reference\nregion: sampler\n\
                cases: [decode]\nmatrix: { width: [64], tokens: [3] }\n\
                expect: [{ then: { max_relative: 1e-3 } }]\n";
    let planned = std::panic::catch_unwind(|| problems(gate));
    let message = *planned.unwrap_err().downcast::<String>().unwrap();
    assert!(message.contains("`sampler` chooses ids, which have no distance"), "{message}");
}

/// Every region of the engine has its gates. Ids that are chosen have no distance (`routing` and
/// `sampling_*` look at them), and what several ranks do together is compared by `collective`.
#[test]
fn every_region_has_shipped_gates() {
    let folder = crate::harness::testing::root().join("gates/regions");
    let chosen = [Region::Sampler, Region::MoeRouter];
    let ranks = [Region::AllReduce, Region::AllGather, Region::StageTransfer];
    for region in Region::ALL {
        let name = region.name().replace('_', "-");
        for kind in ["invariance", "reference"] {
            if kind == "reference" && (chosen.contains(region) || ranks.contains(region)) {
                continue;
            }
            let path = folder.join(format!("{name}-{kind}.yaml"));
            let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{name}: {e}"));
            assert!(text.contains(&format!("kind: region_{kind}\n")), "{name}");
            assert!(text.contains(&format!("region: {region}\n")), "{name}");
        }
    }
}
