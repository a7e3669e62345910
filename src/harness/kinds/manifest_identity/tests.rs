//! The shipped matrix holds, and a wrong one does not.

use crate::harness::testing::{gate, problems};

const FILE: &str = include_str!("../../../../gates/manifest-identity.yaml");

#[test]
fn the_shipped_matrix_holds() {
    assert_eq!(problems(FILE), [""; 0]);
}

#[test]
fn a_change_that_moves_more_or_less_fails() {
    let defects = [
        ("norm_epsilon: [semantic, numerical_policy]", "norm_epsilon: [semantic]"),
        ("rotary_dim: [semantic]", "rotary_dim: [semantic, numerical_policy]"),
        ("weight_byte: [weights_source]", "weight_byte: []"),
        ("file_layout: [storage]", "file_layout: [storage, weights_source]"),
    ];
    let text = defects.iter().fold(FILE.to_owned(), |text, (from, to)| {
        assert!(text.contains(from), "{from}");
        text.replace(from, to)
    });
    let found = problems(&text);
    let models = 3;
    assert_eq!(found.len(), defects.len() * models, "{found:#?}");
    assert!(found.contains(
        &"norm_epsilon: expected to move semantic, moved semantic, numerical_policy".to_owned()
    ));
}

#[test]
fn every_change_needs_its_expectation() {
    let text = FILE.replace("  weight_byte: [weights_source]\n", "");
    let parsed = gate(&text).unwrap();
    let scope = crate::harness::PlanScope {
        device: crate::backend::DeviceKind::Cpu,
        policy: None,
        long: false,
        root: crate::harness::testing::root(),
        base: Default::default(),
    };
    let fault = parsed.kind.cases(&scope).unwrap_err();
    assert_eq!(fault.message, "`weight_byte` is missing: say which ids it moves");
    let unknown = gate(&FILE.replace("weight_byte:", "weight_bite:")).unwrap_err().to_string();
    assert!(unknown.contains("weight_bite"), "{unknown}");
}
