//! The shipped gate holds on a fixture; a bit, a repeated phrase and a bad tail do not pass.

use super::bitwise::{Trace, compare};
use super::quality::{Measured, Quality};
use crate::harness::kind::Verdict;
use crate::harness::testing::{gate, problems};

const FILE: &str = include_str!("../../../../gates/long-sequence-qwen3-5.yaml");

#[test]
fn the_shipped_gate_holds() {
    let text = FILE.replace("policy: [reference, f32, fast]", "policy: [reference]");
    assert_ne!(text, FILE);
    assert_eq!(problems(&text), [""; 0]);
}

#[test]
fn a_cut_outside_the_prompt_is_refused() {
    let text = FILE.replace("cut_tokens: [216,", "cut_tokens: [433,");
    assert_ne!(text, FILE);
    let parsed = gate(&text).unwrap();
    let scope = crate::harness::PlanScope {
        device: crate::backend::DeviceKind::Cpu,
        policy: None,
        long: false,
        root: crate::harness::testing::root(),
        base: crate::harness::testing::root(),
    };
    let fault = parsed.kind.cases(&scope).unwrap_err();
    assert_eq!(fault.message, "433 cuts a prompt of 433 tokens nowhere");
}

#[test]
fn one_bit_anywhere_fails() {
    let whole = Trace {
        logits: vec![vec![0.5, 1.0], vec![2.0, 3.0], vec![1.0, 4.0]],
        tokens: vec![1, 1],
        states: vec![("layers.0.recurrent".into(), vec![0.25])],
    };
    let message = |change: fn(&mut Trace)| {
        let mut cut = whole.clone();
        change(&mut cut);
        let outcome = compare(2, &whole, &cut, &whole);
        if outcome.verdict == Verdict::Fail { outcome.message } else { Default::default() }
    };
    assert_eq!(message(|_| ()), "");
    assert!(message(|t| t.logits[1][0] = 2.000_000_2).contains("position 1 (prompt) differ"));
    assert!(message(|t| t.logits[2][1] = 9.0).contains("position 2 (continuation) differ"));
    assert!(message(|t| t.tokens[1] = 0).contains("token 2 of the continuation differs"));
    assert!(message(|t| t.states[0].1[0] = -0.25).contains("state `layers.0.recurrent` differs"));
    assert!(message(|t| t.states.clear()).contains("another number of states"));
    assert!(message(|t| t.logits.truncate(2)).contains("2 rows of logits, expected 3"));
    let mut nan = whole.clone();
    nan.logits[0][0] = f32::NAN;
    assert_eq!(compare(2, &nan, &nan, &nan).verdict, Verdict::Fail, "NaN never passes");
}

#[test]
fn a_repeated_phrase_and_a_bad_tail_fail() {
    let quality = Quality {
        temperature: 0.8,
        distinct_4gram_share_at_least: 0.8,
        tail_excess_at_most_nats: 0.5,
        continuation_excess_at_most_nats: 1.0,
    };
    let good = Measured {
        nll_nats: vec![3.0; 432],
        continuation: (0..128).collect(),
        continuation_nats: vec![2.0; 128],
    };
    assert_eq!(good.judge(&quality).verdict, Verdict::Pass);
    let looping = Measured { continuation: (0..128).map(|i| i % 10).collect(), ..good.clone() };
    let outcome = looping.judge(&quality);
    assert_eq!(outcome.verdict, Verdict::Fail);
    assert!(outcome.message.contains("8% of its runs of four tokens are distinct"));
    let mut worse = good.clone();
    worse.nll_nats[400..].fill(9.0);
    assert!(worse.judge(&quality).message.contains("the text's tail costs 4.500 nats"));
    let mut garbled = good.clone();
    garbled.continuation_nats[64..].fill(3.5);
    let message = garbled.judge(&quality).message;
    assert!(message.contains("second half costs 3.500 nats a token against 2.000"), "{message}");
    let mut nan = good.clone();
    nan.continuation_nats[127] = f64::NAN;
    assert_eq!(nan.judge(&quality).verdict, Verdict::Fail, "NaN never passes");
    let mut nan = good.clone();
    nan.nll_nats[431] = f64::NAN;
    assert_eq!(nan.judge(&quality).verdict, Verdict::Fail, "NaN never passes");
    let short = Measured { nll_nats: vec![3.0; 100], ..good };
    assert_eq!(short.judge(&quality).verdict, Verdict::Error);
}
