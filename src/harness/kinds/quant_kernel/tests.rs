//! The shipped gate passes on a part of its cells, and planted defects do not.

use super::bench::{Inputs, product};
use super::gate::{Bound, Found, decide, expected};
use crate::backend::Policy;
use crate::harness::kind::Verdict;
use crate::harness::testing::{gate, outcomes, root};
use crate::tensor::Int4Shape;

#[test]
fn the_shipped_gate_parses_and_a_part_of_it_passes() {
    let text = std::fs::read_to_string(root().join("gates/quant-kernel.yaml")).unwrap();
    gate(&text).unwrap();
    let part = text
        .lines()
        .map(|line| match line.trim_start() {
            l if l.starts_with("rows:") => "  rows: [1, 5]",
            l if l.starts_with("shape:") => "  shape: [[24, 384]]",
            _ => line,
        })
        .collect::<Vec<_>>()
        .join("\n");
    for (cell, outcome) in outcomes(&part) {
        assert_eq!(outcome.verdict, Verdict::Pass, "{cell:?}: {}", outcome.message);
    }
}

#[test]
fn a_wrong_product_fails() {
    let inputs = Inputs::new(Int4Shape::new(16, 128, 32).unwrap(), 3).unwrap();
    let policy = Policy::Reference;
    let run = |weight| product(weight, &inputs.x, false, policy, 1, 3).unwrap();
    let found = Found {
        together: run(inputs.packed(false)),
        alone: product(inputs.packed(false), &inputs.x, false, policy, 1, 1).unwrap(),
        dequantised: run(inputs.dequantised(true)),
    };
    let wanted = expected(&inputs, policy);
    let verdict = |change: &dyn Fn(&mut Found), max_relative: f64, bits_of_dequantised: bool| {
        let mut found = found.clone();
        change(&mut found);
        decide(&wanted, &found, &Bound { max_relative, bits_of_dequantised }).verdict
    };
    assert_eq!(verdict(&|_| (), 4e-3, true), Verdict::Pass);
    assert_eq!(verdict(&|_| (), 1e-9, true), Verdict::Fail, "a bound below a rounding");
    assert_eq!(verdict(&|f| f.alone[5] += 1.0, 4e-3, false), Verdict::Fail, "row by row");
    assert_eq!(verdict(&|f| f.dequantised[5] += 1.0, 4e-3, true), Verdict::Fail, "dequantised");
    assert_eq!(verdict(&|f| f.dequantised[5] += 1.0, 4e-3, false), Verdict::Pass, "not asked");
    let both = |value: f32| {
        move |f: &mut Found| {
            f.together[7] = value;
            f.alone[7] = value;
        }
    };
    assert_eq!(verdict(&both(f32::NAN), 4e-3, false), Verdict::Fail, "NaN never passes");
    assert_eq!(verdict(&both(1e3), 4e-3, false), Verdict::Fail, "a wrong value");
    let short = |f: &mut Found| {
        f.together.pop();
        f.alone.pop();
    };
    assert_eq!(verdict(&short, 4e-3, false), Verdict::Fail, "a value is missing");
    // Weights of another row, of the other nibble order, without the last group's scale.
    let mut shifted = inputs.clone();
    let mut codes = shifted.packed.codes.to_vec();
    codes.rotate_left(64);
    shifted.packed.codes = crate::tensor::Shared::owned(codes);
    let other = expected(&shifted, policy);
    let bound = Bound { max_relative: 4e-3, bits_of_dequantised: false };
    assert_eq!(decide(&other, &found, &bound).verdict, Verdict::Fail, "the next row's codes");
}
