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

#[test]
fn experts_are_packed_and_their_quality_is_bounded() {
    let part = std::fs::read_to_string(root().join("gates/quant-artifact-mixtral.yaml")).unwrap();
    assert_eq!(problems(&part), [] as [String; 0]);
    let line = part.lines().find(|line| line.starts_with("quality:")).unwrap();
    let strict = "quality: { tokens: 16, window_tokens: 8, seed: 3, logit_rms: 1e-6, \
                  logit_max_abs: 99, top1_agreement: 0, nll_delta_nats: 9 }";
    let claims = part.lines().find(|line| line.starts_with("claims:")).unwrap();
    let strict = part.replace(line, strict).replace(claims, "claims: [quality]");
    let found = problems(&strict);
    assert!(found.len() == 2 && found[0].contains("logit_rms is "), "{found:?}");
    let fast = part.lines().find(|line| line.starts_with("fast:")).unwrap();
    let strict = part.replace(fast, "fast: { max_abs: 1e-7 }").replace(line, "");
    let strict = strict.replace(claims, "claims: [of_dequantised]");
    let found = problems(&strict);
    assert!(found.len() == 1 && found[0].contains("max_abs is "), "{found:?}");
}

#[test]
fn budgets_and_tolerances_go_with_their_claims() {
    let fault = |text: &str| {
        let gate = format!(
            "gate: test\nclaim: A test.\ntrack: quantization\nkind: quant_artifact\n\
             model: ../tests/fixtures/mixtral\npolicy: [fast]\nroles: [moe_up]\n{text}"
        );
        let parsed = crate::harness::testing::gate(&gate).unwrap();
        let scope = crate::harness::kind::PlanScope {
            device: crate::backend::DeviceKind::Cpu,
            policy: Some(crate::backend::Policy::Fast),
            long: false,
            root: root(),
            base: root(),
        };
        parsed.kind.cases(&scope).map(|_| ()).unwrap_err().message
    };
    let together = "the claim `quality` and its budgets go together";
    assert_eq!(fault("claims: [quality]\n"), together);
    let budgets = |rms: &str| {
        format!(
            "quality: {{ tokens: 8, window_tokens: 4, seed: 1, logit_rms: {rms}, logit_max_abs: 1, \
             top1_agreement: 0, nll_delta_nats: 1 }}\n"
        )
    };
    assert_eq!(fault(&format!("claims: [verified]\n{}", budgets("1"))), together);
    let negative = fault(&format!("claims: [quality]\n{}", budgets("-1")));
    assert_eq!(negative, "budgets are finite and not negative");
    let needs = fault("claims: [of_dequantised]\n");
    assert_eq!(needs, "the claim `of_dequantised` needs a tolerance of `fast`");
}
