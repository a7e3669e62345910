//! The kind can fail: another descriptor, and a change that the echo does not show.

use super::change::{Seen, changes};
use crate::descriptor::Descriptor;
use crate::harness::testing::{problems, root};
use crate::weights::Model;

const FILE: &str = include_str!("../../../../gates/descriptor-echo.yaml");

#[test]
fn the_shipped_gate_holds() {
    assert_eq!(problems(FILE), [""; 0]);
}

#[test]
fn another_descriptor_is_named_by_its_key() {
    let found = problems(&FILE.replace("tiny-llama.json", "tiny-qwen3.json"));
    let named = "llama: the engine's descriptor differs: `";
    assert!(found.iter().any(|m| m.starts_with(named)), "{found:?}");
}

/// An echo of the descriptor before the change, and one that moved another key besides, are noticed.
#[test]
fn a_change_that_does_not_show_is_named() {
    let committed = std::fs::read_to_string(root().join("descriptors/tiny-llama.json")).unwrap();
    let before = Descriptor::from_json("before", committed.as_bytes()).unwrap();
    let all = changes(&committed).unwrap();
    let change = all.iter().find(|c| c.key == "norm_epsilon").unwrap();
    let value = &change.value;
    assert_eq!(
        change.judge(&before).unwrap_err(),
        format!("`norm_epsilon` changed to {value} shows as a change of nothing")
    );
    let mut both = before;
    both.norm_epsilon = value.as_f64().unwrap();
    assert_eq!(change.judge(&both), Ok(()));
    both.max_position_tokens += 1;
    assert_eq!(
        change.judge(&both).unwrap_err(),
        format!(
            "`norm_epsilon` changed to {value} shows as a change of max_position_tokens, norm_epsilon"
        )
    );
}

/// Most keys can be changed and still make an engine; what cannot is refused.
#[test]
fn changes_reach_the_engine() {
    for (descriptor, folder, keys) in [
        ("tiny-llama.json", "llama", &["rope_theta", "rope_scaling.factor", "window"][..]),
        (
            "tiny-deepseek-v2.json",
            "deepseek_v2",
            &["router_scaling", "rope_scaling.mscale", "norm_style"],
        ),
        (
            "tiny-qwen3-next.json",
            "qwen3_next",
            &["moe_experts_per_token", "router_renormalises", "rotary_dim"],
        ),
    ] {
        let committed =
            std::fs::read_to_string(root().join("descriptors").join(descriptor)).unwrap();
        let model = Model::open(root().join("tests/fixtures").join(folder)).unwrap();
        let all = changes(&committed).unwrap();
        let held: Vec<&str> = all
            .iter()
            .filter(|c| c.seen(&model).unwrap() == Seen::Held)
            .map(|c| c.key.as_str())
            .collect();
        for key in keys {
            assert!(held.contains(key), "{descriptor}: `{key}` of {held:?}");
        }
        let refused = all.iter().find(|c| c.key == "hidden").unwrap();
        assert_eq!(refused.seen(&model), Ok(Seen::Refused), "{descriptor}");
    }
}
