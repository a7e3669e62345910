//! The kind can fail: other numbers, a refusal that does not come, and another message.

use crate::harness::testing::problems;

const SHIPPED: &str = include_str!("../../../../gates/placement-plans.yaml");

#[test]
fn the_shipped_gate_holds() {
    assert_eq!(problems(SHIPPED), [""; 0]);
}

fn gate(rest: &str) -> Vec<String> {
    problems(&format!("gate: t\nclaim: c\ntrack: contract\nkind: placement_plan\n{rest}"))
}

#[test]
fn other_numbers_fail() {
    let found = gate(
        "plans:\n  - case: a\n    descriptor: ../descriptors/smollm2-135m.json\n    \
         ranks: { pp: 2 }\n    stages: [[0, 15], [15, 30]]\n    weights_bytes: [1, 2]\n    \
         cache_bytes_per_token: [11520, 11520]\n    replicated: [embed]\n    shared_heads: []\n    \
         off_the_tree: [mlp_down]\n",
    );
    for key in ["`weights_bytes` is [", "`replicated` is []", "`off_the_tree` is []"] {
        assert!(found[0].contains(key), "{found:?}");
    }
    assert!(!found[0].contains("cache_bytes"), "{found:?}");
}

#[test]
fn plans_for_refusals_and_other_messages_fail() {
    let refusal = |ranks: &str, text: &str| {
        gate(&format!(
            "refusals:\n  - case: a\n    descriptor: ../descriptors/smollm2-135m.json\n    \
             ranks: {ranks}\n    refused: '{text}'\n"
        ))
    };
    assert!(refusal("{ tp: 3 }", "x")[0].contains("expected a refusal, found a plan"));
    assert!(refusal("{ tp: 2 }", "x")[0].contains("found: `query_heads` = 9"));
    let right = "`query_heads` = 9 cannot be divided among 2 ranks; heads stay whole";
    assert_eq!(refusal("{ tp: 2 }", right), [""; 0]);
}
