//! The kind can fail: another order, rounding between, a lost rank, and values that are not finite.

use super::gate::{by_definition, contributions, difference};
use super::oracle::Format;
use crate::backend::ranks::{Elements, sum};
use crate::harness::testing::problems;
use crate::tensor::DType;

const SHIPPED: &str = include_str!("../../../../gates/collective.yaml");

#[test]
fn the_shipped_gate_holds() {
    assert_eq!(problems(SHIPPED), [""; 0]);
}

#[test]
fn planted_sums_are_told_from_the_definition() {
    for dtype in [DType::F32, DType::F16, DType::BF16, DType::F8_E4M3, DType::F8_E5M2] {
        let brought = contributions(dtype, 4, 300).unwrap();
        let expected = by_definition(&brought, dtype).unwrap();
        let right = sum(&brought).unwrap().widened();
        assert_eq!(difference(&expected, &right), None, "{dtype}");
        // A rank that does not take part.
        let lost = sum(&brought[..3]).unwrap().widened();
        assert!(difference(&expected, &lost).is_some(), "{dtype}");
        // A chain that rounds to the element type after every addition.
        let mut chain = brought[0].clone();
        for next in &brought[1..] {
            chain = sum(&[chain, next.clone()]).unwrap();
        }
        assert!(difference(&expected, &chain.widened()).is_some(), "{dtype}");
        let mut nan = right.clone();
        nan[7] = f32::NAN;
        assert!(difference(&expected, &nan).is_some(), "{dtype}");
        assert!(difference(&expected, &right[..299]).is_some(), "{dtype}");
    }
    // FP32 in another order of ranks.
    let brought = contributions(DType::F32, 4, 300).unwrap();
    let expected = by_definition(&brought, DType::F32).unwrap();
    let turned: Vec<Elements> = [0, 2, 1, 3].map(|i: usize| brought[i].clone()).to_vec();
    assert!(difference(&expected, &sum(&turned).unwrap().widened()).is_some());
}

#[test]
fn formats_round_as_their_parameters_say() {
    let e4m3 = Format::of(DType::F8_E4M3).unwrap();
    assert_eq!(e4m3.round(17.0), 16.0, "ties to even");
    assert_eq!(e4m3.round(19.0), 20.0);
    assert_eq!(e4m3.round(-1000.0), -448.0);
    let bf16 = Format::of(DType::BF16).unwrap();
    assert_eq!(bf16.round(257.0), 256.0);
    assert_eq!(Format::of(DType::F16).unwrap().round(1e6), f64::INFINITY);
}

#[test]
fn unknown_types_do_not_plan() {
    let planned = std::panic::catch_unwind(|| problems(&SHIPPED.replace("F16, BF16", "I8, BF16")));
    let message = *planned.unwrap_err().downcast::<String>().unwrap();
    assert!(message.contains("ranks do not add `I8`"), "{message}");
}
