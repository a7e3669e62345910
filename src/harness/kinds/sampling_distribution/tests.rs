//! The kind can fail: other shares, ids without mass, ids that never come, truncation gone wrong.

use super::expected::{TruncationSpec, independent};
use super::judge::{judge, observe};
use crate::harness::Verdict;
use crate::harness::kind::{Outcome, PlanScope};
use crate::harness::testing::{gate, problems};
use crate::units::SplitMix64;

const FILE: &str = include_str!("../../../../gates/sampling-distribution.yaml");
const TRUNCATION: &str = include_str!("../../../../gates/sampling-truncation.yaml");

#[test]
fn the_shipped_gate_holds_with_a_tenth_of_the_draws() {
    assert_eq!(problems(&FILE.replace("draws: 200000", "draws: 20000")), [""; 0]);
}

/// Judges 20,000 draws of a sampler that is wrong in one way.
fn planted(logits: &[f32], temperature: f64, choose: fn(&[f64], f64) -> usize) -> Outcome {
    let p = independent(logits, temperature, None, logits.len()).unwrap();
    let mut rng = SplitMix64::new(1);
    let mut draw = || Ok(choose(&p, rng.next_unit()) as u32);
    let counts = observe(logits.len(), 20_000, &mut draw).unwrap();
    judge(&counts, &p, 0.01)
}

fn right(p: &[f64], unit: f64) -> usize {
    let mut sum = 0.0;
    p.iter()
        .position(|w| {
            sum += w;
            sum > unit
        })
        .unwrap_or(p.len() - 1)
}

#[test]
fn planted_defects_fail() {
    let logits = [0.0, 1.0, 2.0, -1000.0];
    assert_eq!(planted(&logits, 1.0, right).verdict, Verdict::Pass);
    let temperature_ignored = planted(&logits, 1.0, |p, unit| {
        let squared: Vec<f64> = p.iter().map(|w| w * w).collect();
        let total: f64 = squared.iter().sum();
        right(&squared, unit * total)
    });
    assert_eq!(temperature_ignored.verdict, Verdict::Fail);
    let next_id = planted(&logits, 1.0, |p, unit| (right(p, unit) + 1).min(3));
    assert!(next_id.message.contains("id 3 has no mass"), "{}", next_id.message);
    // Each share is right within 0.01, but a block of ids loses mass to another one.
    let wide = [0.0; 1000];
    let shifted = planted(&wide, 1.0, |p, unit| {
        let id = right(p, unit);
        if id < 250 && unit * 1e6 % 1.0 < 0.2 { id + 500 } else { id }
    });
    assert!(shifted.message.contains("the share of ids up to"), "{}", shifted.message);
}

fn scope() -> PlanScope {
    PlanScope {
        device: crate::backend::DeviceKind::Cpu,
        policy: None,
        long: false,
        root: Default::default(),
        base: Default::default(),
    }
}

#[test]
fn files_that_decide_nothing_are_refused() {
    let fault = |from: &str, to: &str| {
        let file = gate(&FILE.replacen(from, to, 1)).unwrap();
        file.kind.cases(&scope()).unwrap_err().message
    };
    assert!(fault("draws: 200000", "draws: 0").contains("at least 1"));
    assert!(fault("max_deviation: 0.01", "max_deviation: 1.5").contains("between 0 and 1"));
    assert!(fault("temperature: 0.5", "temperature: -1").contains("is negative"));
    assert!(fault("[0.25, 0.75]", "[0.25, 0.5]").contains("sum to 0.75"));
}

#[test]
fn the_shipped_gate_of_truncation_holds() {
    assert_eq!(problems(TRUNCATION), [""; 0]);
}

/// Judges draws, in proportion, of the ids that a wrong truncation keeps.
fn kept_wrongly(spec: &str, temperature: f64, keeps: &[usize]) -> Outcome {
    let logits = [1.0f32, 2.0, 4.0, 2.0, 1.0].map(f32::ln);
    let truncation: TruncationSpec = serde_json::from_str(spec).unwrap();
    let expected = independent(&logits, temperature, Some(truncation), 5).unwrap();
    let whole = independent(&logits, temperature, None, 5).unwrap();
    let kept: Vec<f64> =
        whole.iter().enumerate().map(|(i, w)| if keeps.contains(&i) { *w } else { 0.0 }).collect();
    let total: f64 = kept.iter().sum();
    let mut rng = SplitMix64::new(1);
    let mut draw = || Ok(right(&kept, rng.next_unit() * total) as u32);
    let counts = observe(5, 100_000, &mut draw).unwrap();
    judge(&counts, &expected, 0.01)
}

#[test]
fn truncation_gone_wrong_fails() {
    for (spec, temperature, right, wrong, message) in [
        (r#"{"top_k": 2}"#, 1.0, &[1, 2][..], &[2, 3][..], "id 3 has no mass"),
        (r#"{"top_k": 2}"#, 1.0, &[1, 2], &[1, 2, 3], "id 3 has no mass"),
        (r#"{"top_p": 0.5}"#, 1.0, &[1, 2], &[2], "id 1 has the share 0.33333 and never came"),
        (r#"{"top_p": 0.7}"#, 0.5, &[1, 2], &[1, 2, 3], "id 3 has no mass"),
        (r#"{"min_p": 0.3}"#, 1.0, &[1, 2, 3], &[2], "id 1 has the share 0.25000 and never came"),
        (r#"{"min_p": 0.15}"#, 1.0, &[0, 1, 2, 3, 4], &[1, 2, 3], "id 0 has the share 0.10000"),
        (r#"{"top_k": 3, "top_p": 0.7}"#, 1.0, &[1, 2], &[1, 2, 3], "id 3 has no mass"),
        (r#"{"top_p": 0.7, "min_p": 0.4}"#, 1.0, &[1, 2, 3], &[1, 2], "id 3 has the share 0.25000"),
    ] {
        let passed = kept_wrongly(spec, temperature, right);
        assert_eq!(passed.verdict, Verdict::Pass, "{spec}: {}", passed.message);
        let failed = kept_wrongly(spec, temperature, wrong);
        assert!(failed.message.starts_with(message), "{spec}: {}", failed.message);
    }
}

#[test]
fn truncation_that_the_command_line_refuses_is_refused() {
    let fault = |from: &str, to: &str| {
        let refused = gate(&TRUNCATION.replacen(from, to, 1)).unwrap();
        refused.kind.cases(&scope()).unwrap_err().message
    };
    let refused = [
        (
            "{ top_k: 1 }",
            "{ top_k: 0 }",
            "`top_k_of_one_among_equal_logits`: top_k: expected a whole number of ids from 1 on, \
             found `0`; leave it out to keep all",
        ),
        (
            "{ top_p: 0.5 }",
            "{ top_p: 1.5 }",
            "`top_p_keeps_the_one_that_crosses`: top_p: expected a number above 0 and up to 1, \
             found `1.5`; leave it out to keep all",
        ),
        (
            "{ min_p: 1.0 }",
            "{ min_p: 2.0 }",
            "`min_p_of_one_keeps_all_that_equal_the_largest`: min_p: expected a number above 0 and \
             up to 1, found `2`; leave it out to keep all",
        ),
        (
            "{ top_k: 2 }",
            "{}",
            "`top_k_takes_the_lower_of_equal_ids`: `truncation` holds no transform; expected top_k, \
             top_p or min_p",
        ),
    ];
    for (from, to, message) in refused {
        assert_eq!(fault(from, to), message);
    }
}
