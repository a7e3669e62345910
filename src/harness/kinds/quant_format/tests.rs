//! The shipped gate passes, and planted defects do not.

use super::contents::Contents;
use super::definition::{Packed, nearest_bf16, pack};
use super::gate::decide;
use crate::harness::kind::Verdict;
use crate::harness::testing::{problems, root};
use crate::tensor::{Int4Shape, quantise};

fn shipped() -> String {
    std::fs::read_to_string(root().join("gates/quant-format.yaml")).unwrap()
}

#[test]
fn the_shipped_gate_passes_and_another_message_fails() {
    let gate = shipped();
    assert_eq!(problems(&gate), [] as [String; 0]);
    let other = gate.replace("the code -8", "the code -9");
    assert_ne!(other, gate);
    assert_eq!(problems(&other).len(), 2, "both nibbles");
}

#[test]
fn a_wrong_quantiser_fails() {
    let shape = Int4Shape::new(8, 128, 64).unwrap();
    for contents in [Contents::Ties, Contents::Bell] {
        let values = contents.values(8, 128, 64);
        let (codes, scales) = quantise(&values, shape).unwrap();
        let verdict = |change: &dyn Fn(&mut Packed)| {
            let mut packed = Packed { codes: codes.clone(), scales: scales.clone() };
            change(&mut packed);
            decide(&values, packed, shape).verdict
        };
        assert_eq!(verdict(&|_| ()), Verdict::Pass);
        assert_eq!(verdict(&|p| p.scales[3] += 1), Verdict::Fail, "the next scale");
        assert_eq!(verdict(&|p| p.codes[70] ^= 0x10), Verdict::Fail, "the next code");
        assert_eq!(verdict(&|p| p.codes[3] = p.codes[3].rotate_left(4)), Verdict::Fail, "swapped");
        assert_eq!(verdict(&|p| p.codes.truncate(9)), Verdict::Fail, "bytes are missing");
        assert_eq!(verdict(&|p| p.scales.push(0x3f80)), Verdict::Fail, "a scale too many");
    }
}

#[test]
fn the_definition_searches_correctly() {
    assert_eq!(nearest_bf16(1.0), 0x3f80);
    assert_eq!(nearest_bf16(1.0 / 7.0), 0x3e12);
    // Half way between 1 and the next: the even one.
    assert_eq!(nearest_bf16(1.0 + 1.0 / 256.0), 0x3f80);
    assert_eq!(nearest_bf16(1.0 + 3.0 / 256.0), 0x3f82);
    let packed = pack(&[7.0, 0.5, 1.5, -2.5], 4, 4);
    assert_eq!(packed, Packed { codes: vec![0x07, 0xe2], scales: vec![0x3f80] });
}
