//! Each check on something right, and on one planted defect after another.

use super::activations::compare;
use super::bounds::{Bf16Noise, Bounds, F32Bounds};
use super::greedy;
use super::logits::LogitRows;
use super::reference::{Array, Greedy, Logits, Reference};
use crate::harness::kind::{Outcome, Verdict};
use safetensors::tensor::{Dtype, TensorView, serialize_to_file};
use serde_json::json;
use std::path::PathBuf;

fn bounds(json: serde_json::Value) -> F32Bounds {
    serde_json::from_value(json).expect("bounds")
}

fn f32_bounds() -> Bounds {
    Bounds::F32(bounds(json!({ "logits_max_abs": 5e-4, "activations_max_relative": 1e-4 })))
}

fn bf16_bounds() -> Bounds {
    let noise = json!({ "mean_abs": 0.03, "p99_abs": 0.1, "max_abs": 0.2 });
    Bounds::Bf16(serde_json::from_value::<Bf16Noise>(noise).expect("noise"))
}

#[test]
fn a_threshold_is_finite_and_above_zero() {
    for bad in [json!(0), json!(-1e-3), json!("5e-4"), json!(null)] {
        let text = json!({ "logits_max_abs": bad, "activations_max_relative": 1e-4 });
        assert!(serde_json::from_value::<F32Bounds>(text).is_err());
    }
    let missing = json!({ "logits_max_abs": 5e-4 });
    assert!(serde_json::from_value::<F32Bounds>(missing).is_err());
}

/// Three positions of eight logits.
fn rows() -> Vec<Vec<f32>> {
    (0..3).map(|r| (0..8).map(|i| ((r * 8 + i) as f32 * 0.7).sin() * 3.0).collect()).collect()
}

fn full() -> Logits {
    Logits::Full(Array { shape: vec![3, 8], values: rows().concat() })
}

fn columns() -> Logits {
    let best = |row: &[f32]| (0..8).max_by(|a, b| row[*a].total_cmp(&row[*b])).unwrap();
    let ids: Vec<u32> = rows().iter().flat_map(|r| [best(r) as u32, 5]).collect();
    let values = rows().iter().flat_map(|r| [r[best(r)], r[5]]).collect();
    let lse = |r: &Vec<f32>| r.iter().map(|x| f64::from(*x).exp()).sum::<f64>().ln() as f32;
    Logits::Columns { ids, per_row: 2, values, logsumexp: rows().iter().map(lse).collect() }
}

fn judge(reference: &Logits, found: &[Vec<f32>], bounds: Bounds) -> Outcome {
    let mut compared = LogitRows::new(reference);
    for row in found {
        if let Err(why) = compared.push(row) {
            return Outcome::fail(why);
        }
    }
    compared.outcome(3, 3, bounds)
}

/// The verdict on rows with one thing changed.
fn verdict(reference: &Logits, bounds: Bounds, change: impl FnOnce(&mut Vec<Vec<f32>>)) -> Verdict {
    let mut found = rows();
    change(&mut found);
    judge(reference, &found, bounds).verdict
}

#[test]
fn logits_pass_within_the_bound_only() {
    for reference in [full(), columns()] {
        assert_eq!(verdict(&reference, f32_bounds(), |_| ()), Verdict::Pass);
        assert_eq!(verdict(&reference, f32_bounds(), |r| r[1][5] += 4e-4), Verdict::Pass);
        assert_eq!(verdict(&reference, f32_bounds(), |r| r[1][5] += 6e-4), Verdict::Fail);
        assert_eq!(verdict(&reference, f32_bounds(), |r| r[1][5] = f32::NAN), Verdict::Fail);
        assert_eq!(verdict(&reference, f32_bounds(), |r| r[1][5] = f32::INFINITY), Verdict::Fail);
        assert_eq!(verdict(&reference, f32_bounds(), |r| r.truncate(2)), Verdict::Fail);
        assert_eq!(verdict(&reference, f32_bounds(), |r| r.push(r[0].clone())), Verdict::Fail);
        assert_eq!(verdict(&reference, f32_bounds(), |r| r[2].truncate(4)), Verdict::Fail);
        assert_eq!(verdict(&reference, f32_bounds(), |r| r.swap(0, 1)), Verdict::Fail);
        assert_eq!(verdict(&reference, bf16_bounds(), |r| r[1][5] += 0.1), Verdict::Pass);
        let shift = |r: &mut Vec<Vec<f32>>| r.iter_mut().flatten().for_each(|x| *x += 0.07);
        assert_eq!(verdict(&reference, bf16_bounds(), shift), Verdict::Fail, "mean");
        let spike = |r: &mut Vec<Vec<f32>>| r[1][5] += 0.3;
        assert_eq!(verdict(&reference, bf16_bounds(), spike), Verdict::Fail, "0.99 quantile");
        assert_eq!(verdict(&reference, bf16_bounds(), |r| r[0][5] = f32::NAN), Verdict::Fail);
        assert_eq!(verdict(&reference, Bounds::Unknown, |_| ()), Verdict::Measured);
        assert_eq!(verdict(&reference, Bounds::Unknown, |r| r[0][5] = f32::NAN), Verdict::Fail);
    }
}

#[test]
fn columns_notice_a_change_outside_them() {
    let outside = |r: &mut Vec<Vec<f32>>| r[0][7] += 0.5;
    assert_eq!(verdict(&columns(), f32_bounds(), outside), Verdict::Fail, "through logsumexp");
    assert_eq!(verdict(&columns(), f32_bounds(), |r| r[0][7] = f32::NAN), Verdict::Fail);
}

#[test]
fn the_message_says_where() {
    let mut found = rows();
    found[2][3] += 1.0;
    let outcome = judge(&full(), &found, f32_bounds());
    assert!(outcome.message.contains("worst at position 2, id 3"), "{}", outcome.message);
    assert_eq!(outcome.evidence["positions"], 3);
    assert_eq!(outcome.evidence["compared"], 24);
}

#[test]
fn greedy_tokens_are_decided_by_their_margin() {
    let reference = Greedy { tokens: vec![4, 7, 1, 9], margins: vec![2.0, 0.39, 0.5, 0.001] };
    let verdict = |found: &[u32], bounds| greedy::outcome(&reference, found, 0, bounds).verdict;
    assert_eq!(verdict(&[4, 7, 1, 9], f32_bounds()), Verdict::Pass);
    assert_eq!(verdict(&[4, 7, 1, 8], f32_bounds()), Verdict::Fail, "whatever the margin");
    assert_eq!(verdict(&[4, 7, 1], f32_bounds()), Verdict::Fail, "one step short");
    assert_eq!(verdict(&[4, 3, 1, 8], bf16_bounds()), Verdict::Pass, "margins below 0.4");
    assert_eq!(verdict(&[4, 7, 3, 9], bf16_bounds()), Verdict::Fail);
    assert_eq!(verdict(&[7, 4, 1, 9], bf16_bounds()), Verdict::Fail, "swapped tokens");
    assert_eq!(verdict(&[4, 7, 1, 9], Bounds::Unknown), Verdict::Measured);
    let close = Greedy { tokens: vec![4], margins: vec![0.39] };
    let undecided = greedy::outcome(&close, &[4], 0, bf16_bounds());
    assert_eq!(undecided.verdict, Verdict::Measured, "nothing was decided, so nothing passed");
}

/// With a maximum of 2, and 0.1 where no route differs.
fn routed_bounds() -> Bounds {
    let noise = json!({
        "mean_abs": 0.5, "p99_abs": 1.0, "max_abs": 2.0, "max_abs_before_flip": 0.1,
    });
    Bounds::Bf16(serde_json::from_value::<Bf16Noise>(noise).expect("noise"))
}

#[test]
fn rows_before_a_flip_have_bounds_of_their_own() {
    let logits = full();
    let verdict = |untouched: usize, shift: f32| {
        let mut compared = LogitRows::new(&logits);
        let mut found = rows();
        found[1][5] += shift;
        found.iter().for_each(|row| compared.push(row).expect("a row"));
        compared.outcome(3, untouched, routed_bounds()).verdict
    };
    assert_eq!(verdict(1, 0.3), Verdict::Pass, "row 1 is behind a flip");
    assert_eq!(verdict(2, 0.3), Verdict::Fail);
    assert_eq!(verdict(2, 0.15), Verdict::Pass);
    assert_eq!(verdict(2, f32::NAN), Verdict::Fail);

    let reference = Greedy { tokens: vec![4, 7, 1, 9], margins: vec![2.0, 0.15, 0.5, 5.0] };
    let verdict = |found: &[u32], untouched| {
        greedy::outcome(&reference, found, untouched, routed_bounds()).verdict
    };
    assert_eq!(verdict(&[4, 3, 3, 9], 0), Verdict::Pass, "undecided, and behind a flip");
    assert_eq!(verdict(&[3, 7, 1, 9], 1), Verdict::Fail, "its row is untouched");
    assert_eq!(verdict(&[3, 7, 1, 9], 0), Verdict::Pass, "the prompt has flipped before");
    assert_eq!(verdict(&[4, 3, 1, 9], 1), Verdict::Pass, "undecided");
    assert_eq!(verdict(&[4, 7, 3, 9], 2), Verdict::Pass);
    assert_eq!(verdict(&[4, 7, 3, 9], 3), Verdict::Fail, "its row is untouched");
    assert_eq!(verdict(&[4, 7, 1, 8], 0), Verdict::Fail, "from twice the maximum on, anywhere");
}

#[test]
fn activations_are_bounded_by_their_largest_value() {
    let array = |values: &[f32]| Array { shape: vec![values.len()], values: values.to_vec() };
    let expected = array(&[10.0, 0.001]);
    assert!(compare(&expected, &array(&[10.0009, 0.0019]), 1e-4).is_ok());
    assert!(compare(&expected, &array(&[10.002, 0.001]), 1e-4).is_err());
    assert!(compare(&expected, &array(&[10.0, f32::NAN]), 1e-4).is_err());
    let wrong_shape = Array { shape: vec![1, 2], values: vec![10.0, 0.001] };
    assert!(compare(&expected, &wrong_shape, 1e-4).is_err());
    assert!(compare(&array(&[0.0]), &array(&[1e-9]), 1e-4).is_err(), "no share of zero");
    assert_eq!(compare(&array(&[0.0]), &array(&[0.0]), 1e-4), Ok(0.0));
}

/// A reference on disk with the given JSON and tensors.
fn on_disk(
    json: serde_json::Value,
    tensors: &[(&str, Vec<usize>, Vec<f32>)],
) -> Result<(), String> {
    let folder = tempfile::tempdir().map_err(|e| e.to_string())?;
    let path = folder.path().join("r.json");
    std::fs::write(&path, json.to_string()).map_err(|e| e.to_string())?;
    let bytes: Vec<(&str, Vec<usize>, Vec<u8>)> = tensors
        .iter()
        .map(|(n, s, v)| (*n, s.clone(), v.iter().flat_map(|x| x.to_le_bytes()).collect()))
        .collect();
    let views: Vec<(&str, TensorView<'_>)> = bytes
        .iter()
        .map(|(n, s, b)| (*n, TensorView::new(Dtype::F32, s.clone(), b).expect("a tensor")))
        .collect();
    serialize_to_file(views, None, &path.with_extension("safetensors")).expect("a file");
    let reference = Reference::open(&path)?;
    for prompt in &reference.prompts {
        reference.logits(prompt)?;
    }
    Ok(())
}

#[test]
fn a_damaged_reference_is_refused() {
    let prompts = json!([{ "name": "a", "ids": [1, 2] }]);
    let logits =
        |shape: &[usize], values: &[f32]| ("logits.a.f32", shape.to_vec(), values.to_vec());
    let good = logits(&[2, 2], &[0.5; 4]);
    let refusal = |json: serde_json::Value, tensors: &[_]| on_disk(json, tensors).unwrap_err();
    assert_eq!(on_disk(json!({ "prompts": prompts }), std::slice::from_ref(&good)), Ok(()));

    let truncated = refusal(json!({ "prompts": prompts }), &[logits(&[1, 2], &[0.5; 2])]);
    assert!(truncated.contains("is [1, 2], expected 2 axes, the first of 2"), "{truncated}");
    let nan = refusal(json!({ "prompts": prompts }), &[logits(&[2, 2], &[0.5, f32::NAN, 0., 0.])]);
    assert!(nan.contains("element 1 is NaN"), "{nan}");
    let missing = refusal(json!({ "prompts": prompts }), &[]);
    assert!(missing.contains("`columns.a.index`: is missing"), "{missing}");
    let taps =
        refusal(json!({ "prompts": prompts }), &[good.clone(), ("tap.embed", vec![1], vec![0.0])]);
    assert!(taps.contains("no `tap_prompt`"), "{taps}");

    for (json, message) in [
        (json!({ "prompts": [{ "name": "a", "ids": [] }] }), "has no tokens"),
        (json!({ "prompts": [{ "name": "a", "ids": [-1] }] }), "invalid value"),
        (json!({ "prompts": [prompts[0], prompts[0]] }), "occurs twice"),
        (json!({}), "missing field `prompts`"),
        (json!({ "prompts": prompts, "tap_prompt": "b" }), "not in `prompts`"),
        (
            json!({ "prompts": prompts, "greedy": { "b": { "fp32": [1], "fp32_margin": [1.0] } } }),
            "names the prompt `b`",
        ),
        (
            json!({ "prompts": prompts, "greedy": { "a": { "fp32": [1], "fp32_margin": [] } } }),
            "1 tokens and 0 margins",
        ),
        (
            json!({ "prompts": prompts, "greedy": { "a": { "fp32": [1], "fp32_margin": [-1.0] } } }),
            "holds -1",
        ),
    ] {
        let refused = refusal(json, std::slice::from_ref(&good));
        assert!(refused.contains(message), "`{message}` is not in: {refused}");
    }
}

fn fixture(path: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(path)
}

#[test]
fn shipped_references_open() {
    for (file, prompts) in [
        ("llama/reference.json", 3),
        ("llama/long.json", 1),
        ("qwen3_5_text/reference.json", 3),
        ("qwen3_5/long.json", 1),
        ("smollm2-135m/reference.json", 5),
    ] {
        let reference = Reference::open(&fixture(file)).unwrap();
        assert_eq!(reference.prompts.len(), prompts, "{file}");
        for prompt in &reference.prompts {
            reference.logits(prompt).unwrap();
        }
    }
}

#[test]
fn weights_are_known_by_the_digest_of_the_script() {
    let reference = Reference::open(&fixture("llama/long.json")).unwrap();
    let open = |name: &str| crate::weights::Checkpoint::open(fixture(name)).unwrap();
    assert_eq!(reference.foreign_weights(&open("llama")), None);
    let foreign = reference.foreign_weights(&open("qwen3_5_text")).unwrap();
    assert!(foreign.contains("other weights"), "{foreign}");
}
