//! The shipped gates pass, and planted defects do not.

use super::bench::Logits;
use super::checks::decide_prefill;
use crate::harness::testing::{problems, root};

#[test]
fn the_shipped_gate_passes() {
    let text = std::fs::read_to_string(root().join("gates/quant-artifact-llama.yaml")).unwrap();
    assert_eq!(problems(&text), [] as [String; 0]);
}

#[test]
fn changed_prefill_is_noticed() {
    let logits = |a: f32, b: f32| Logits { prefill: vec![a, 1.0], decode: vec![vec![b, 2.0]] };
    let (before, packed) = (logits(0.5, 0.25), logits(0.75, 0.125));
    assert_eq!(decide_prefill(&before, &logits(0.5, 0.125), &packed), None);
    assert!(decide_prefill(&before, &logits(0.75, 0.125), &packed).is_some(), "prefill is packed");
    assert!(decide_prefill(&before, &logits(0.5, 0.25), &packed).is_some(), "decode is not packed");
    assert!(decide_prefill(&before, &before, &before).is_some(), "packing changes nothing");
}

#[test]
fn roles_that_cannot_be_packed_are_refused() {
    let gate = "gate: test\nclaim: A test.\ntrack: quantization\nkind: quant_artifact\n\
                model: ../tests/fixtures/llama\nclaims: [verified]\npolicy: [reference]\n\
                roles: [embed]\n";
    let parsed = crate::harness::testing::gate(gate).unwrap();
    let scope = crate::harness::kind::PlanScope {
        device: crate::backend::DeviceKind::Cpu,
        policy: None,
        long: false,
        root: root(),
        base: root(),
    };
    let fault = parsed.kind.cases(&scope).unwrap_err();
    assert_eq!(fault.message, "`embed` is no role that can be packed");
}
