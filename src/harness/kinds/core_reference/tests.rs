//! The cores pass, and planted defects do not.

use super::fp64;
use super::inputs::{
    AttentionInputs, AttentionShape, GdnInputs, GdnShape, LatentInputs, LatentShape,
};
use super::kind::{Bound, decide, log_sums_complaint};
use super::run::{self, Execution};
use crate::backend::{DeviceKind, Policy};
use crate::harness::kind::Verdict;

const BOUND: Bound = Bound { max_relative: 1e-5 };
const HOW: Execution =
    Execution { device: DeviceKind::Cpu, policy: Policy::F32, threads: 1, chunk_tokens: 100 };

#[test]
fn a_wrong_attention_fails() {
    let shape = AttentionShape { tokens: 300, heads: 4, kv_heads: 2, head_dim: 16, window: None };
    let inputs = AttentionInputs::new(shape);
    let found = run::attention(&inputs, HOW).unwrap();
    let verdict = |change: &dyn Fn(&mut AttentionInputs), found: &[f32]| {
        let mut inputs = inputs.clone();
        change(&mut inputs);
        decide(&[("out", fp64::attention(&inputs), found.to_vec())], &BOUND).verdict
    };
    assert_eq!(verdict(&|_| (), &found), Verdict::Pass);
    // Not of position 0, where a softmax over one key is 1 whatever the query.
    assert_eq!(verdict(&|i| i.q[7 * 64 + 37] += 0.125, &found), Verdict::Fail, "a query element");
    assert_eq!(verdict(&|i| i.v.rotate_left(16), &found), Verdict::Fail, "the other value head");
    // Large, since the last key may weigh little.
    let last = 299 * 2 * 16;
    assert_eq!(verdict(&|i| i.v[last] += 1e6, &found), Verdict::Fail, "the last value");
    assert_eq!(verdict(&|i| i.k[last - 32] = 4.0, &found), Verdict::Fail, "a key of two rows");
    let mut nan = found.clone();
    nan[0] = f32::NAN;
    assert_eq!(verdict(&|_| (), &nan), Verdict::Fail, "NaN never passes");
    assert_eq!(verdict(&|_| (), &found[1..]), Verdict::Fail, "a value is missing");
}

/// Another window is found, and a row sees its last keys as if there were no others.
#[test]
fn a_wrong_window_fails() {
    let window = Some(37);
    let shape = AttentionShape { tokens: 300, heads: 4, kv_heads: 2, head_dim: 16, window };
    let inputs = AttentionInputs::new(shape);
    let found = run::attention(&inputs, HOW).unwrap();
    let verdict = |window| {
        let inputs =
            AttentionInputs { shape: AttentionShape { window, ..shape }, ..inputs.clone() };
        decide(&[("out", fp64::attention(&inputs), found.clone())], &BOUND).verdict
    };
    assert_eq!(verdict(window), Verdict::Pass);
    for wrong in [Some(36), Some(38), None] {
        assert_eq!(verdict(wrong), Verdict::Fail, "{wrong:?}");
    }
    let last = AttentionInputs {
        shape: AttentionShape { tokens: 37, window: None, ..shape },
        q: inputs.q[263 * 64..].to_vec(),
        k: inputs.k[263 * 32..].to_vec(),
        v: inputs.v[263 * 32..].to_vec(),
    };
    assert_eq!(fp64::attention(&inputs)[299 * 64..], fp64::attention(&last)[36 * 64..]);
}

#[test]
fn wrong_sums_of_attention_fail() {
    let shape = AttentionShape { tokens: 40, heads: 2, kv_heads: 1, head_dim: 16, window: None };
    let inputs = AttentionInputs::new(shape);
    let sums: Vec<f32> = fp64::log_sums(&inputs).iter().map(|x| *x as f32).collect();
    let out = vec![0.5f32; 3];
    let complaint = |change: &dyn Fn(&mut Vec<f32>, &mut Vec<f32>)| {
        let mut asked = (out.clone(), sums.clone());
        change(&mut asked.0, &mut asked.1);
        log_sums_complaint(&inputs, &out, &asked)
    };
    assert_eq!(complaint(&|_, _| ()), None);
    let of_two = |sums: &mut Vec<f32>| sums.iter_mut().for_each(|x| *x *= std::f32::consts::LOG2_E);
    assert!(complaint(&|_, sums| of_two(sums)).unwrap().contains("log_sums"), "another base");
    assert!(complaint(&|_, sums| sums[7] += 1e-3).is_some(), "one sum");
    assert!(complaint(&|out, _| out[2] = -out[2]).unwrap().contains("other bits"));
    // Keys of zeros: a row sees row + 1 of them alike.
    let mut flat = inputs.clone();
    flat.k.fill(0.0);
    let found = fp64::log_sums(&flat);
    assert!(found.iter().enumerate().all(|(i, x)| (x - ((i / 2 + 1) as f64).ln()).abs() < 1e-12));
}

#[test]
fn a_wrong_delta_rule_fails() {
    let shape = GdnShape { tokens: 200, key_heads: 2, value_heads: 6, key_dim: 16, value_dim: 8 };
    let inputs = GdnInputs::new(shape);
    let (found, found_state) = run::gated_delta_net(&inputs, HOW).unwrap();
    let verdict = |change: &dyn Fn(&mut GdnInputs)| {
        let mut inputs = inputs.clone();
        change(&mut inputs);
        let (out, state) = fp64::gated_delta_net(&inputs);
        let compared = [("out", out, found.clone()), ("state", state, found_state.clone())];
        decide(&compared, &BOUND).verdict
    };
    assert_eq!(verdict(&|_| ()), Verdict::Pass);
    assert_eq!(verdict(&|i| i.beta[64 * 6] *= 0.5), Verdict::Fail, "β of a group's first row");
    assert_eq!(verdict(&|i| i.log_decay[63 * 6 + 5] -= 0.5), Verdict::Fail, "a lost decay");
    assert_eq!(verdict(&|i| i.k.rotate_left(16)), Verdict::Fail, "the other key head");
    assert_eq!(verdict(&|i| i.q.iter_mut().for_each(|q| *q *= 4.0)), Verdict::Fail, "no scale");
}

#[test]
fn a_wrong_latent_attention_fails() {
    let shape = LatentShape { tokens: 300, heads: 3, latent: 32, nope: 16, rope: 8, value: 24 };
    let inputs = LatentInputs::new(shape);
    let found = run::latent_attention(&inputs, HOW).unwrap();
    let verdict = |change: &dyn Fn(&mut LatentInputs)| {
        let mut inputs = inputs.clone();
        change(&mut inputs);
        decide(&[("out", fp64::latent_attention(&inputs), found.clone())], &BOUND).verdict
    };
    assert_eq!(verdict(&|_| ()), Verdict::Pass);
    assert_eq!(verdict(&|i| i.rope_key.fill(0.0)), Verdict::Fail, "no positions");
    assert_eq!(verdict(&|i| i.q.rotate_left(24)), Verdict::Fail, "the next head's query");
    // Keys and values of a head lie side by side: halves taken for heads would swap them.
    assert_eq!(verdict(&|i| i.kv_b.rotate_left(16 * 32)), Verdict::Fail, "values for keys");
    assert_eq!(verdict(&|i| i.latent[257 * 32..258 * 32].fill(3.0)), Verdict::Fail, "one latent");
}
