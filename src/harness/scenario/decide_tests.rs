//! Decisions on made-up records: every decision, and every defect that must prevent one.

use super::testing::{lines, plan};
use super::*;
use crate::harness::stats::Side;

fn quads(lines: &mut [Line]) -> impl Iterator<Item = &mut QuadLine> {
    lines.iter_mut().filter_map(|l| if let Line::Quad(q) = l { Some(q) } else { None })
}

fn decided(plan: &Plan, lines: &[Line]) -> Verdict {
    decide(plan, lines, false).expect("decided")
}

#[test]
fn a_clear_gain_is_admitted_at_the_first_look() {
    let verdict = decided(&plan(1.25), &lines(20, |_| 1.4));
    assert_eq!((verdict.decision, verdict.looks), (Decision::Admit, 1));
    let ratio = verdict.comparisons[0].estimate.log_ratio.exp();
    assert!((ratio - 1.4).abs() < 0.01, "{ratio}");
    assert_eq!(verdict.comparisons[0].rules[0].1, Side::Above);
}

#[test]
fn a_clear_loss_is_declined_and_says_which_rule() {
    let verdict = decided(&plan(1.25), &lines(20, |_| 1.1));
    assert_eq!(verdict.decision, Decision::Decline);
    assert!(verdict.reasons[0].contains("lower bound of the ratio ≥ 1.25"), "{verdict:?}");
}

#[test]
fn a_ratio_at_the_threshold_stays_open_to_the_last_look() {
    let p = plan(1.25);
    assert!(decide(&p, &lines(20, |_| 1.25), false).is_none());
    assert!(decide(&p, &lines(40, |_| 1.25), false).is_none());
    let verdict = decided(&p, &lines(80, |_| 1.25));
    assert_eq!((verdict.decision, verdict.looks), (Decision::Inconclusive, 3));
}

#[test]
fn a_fast_arm_with_wrong_tokens_cannot_win() {
    let mut wrong = lines(20, |_| 2.0);
    quads(&mut wrong).nth(7).unwrap().samples[1].tokens = "u".into();
    let verdict = decided(&plan(1.25), &wrong);
    assert_eq!(verdict.decision, Decision::Invalid);
    assert!(verdict.reasons[0].contains("candidate in launch 1 produced other tokens"));
    // The digest is compared with the arm's own: a candidate that always differs is no defect.
    let mut other = lines(20, |_| 2.0);
    for line in &mut other {
        match line {
            Line::Launch(l) => l.arms.get_mut("candidate").unwrap().tokens = vec!["u".into()],
            Line::Quad(q) => [1, 2].into_iter().for_each(|i| q.samples[i].tokens = "u".into()),
            Line::LaunchEnd(_) => {}
        }
    }
    assert_eq!(decided(&plan(1.25), &other).decision, Decision::Admit);
}

#[test]
fn quads_with_uneven_bandwidth_are_dropped_whatever_the_arms_took() {
    let mut noisy = lines(25, |i| if i < 5 { 0.2 } else { 1.4 });
    for quad in quads(&mut noisy).take(5) {
        quad.bandwidth_bytes_per_second[1] *= 1.2;
    }
    let verdict = decided(&plan(1.25), &noisy);
    assert_eq!((verdict.decision, verdict.dropped, verdict.quads), (Decision::Admit, 5, 25));
    // Wild times alone drop nothing.
    let wild = lines(25, |i| if i < 5 { 0.2 } else { 1.4 });
    assert_eq!(decide(&plan(1.25), &wild, false).map_or(0, |v| v.dropped), 0);
}

#[test]
fn too_many_dropped_quads_make_the_run_invalid() {
    let mut noisy = lines(60, |_| 1.4);
    quads(&mut noisy).take(35).for_each(|q| q.bandwidth_bytes_per_second[0] = 1.0);
    let verdict = decided(&plan(1.25), &noisy);
    assert_eq!(verdict.decision, Decision::Invalid);
    assert!(verdict.reasons[0].contains("35 of 60 quads were dropped"), "{verdict:?}");
}

#[test]
fn a_look_at_too_many_dropped_quads_waits_for_better_ones() {
    // 12 of the first 32 quads are dropped: 37% at the first look, 23% at the second.
    let mut noisy = lines(60, |_| 1.4);
    quads(&mut noisy).take(12).for_each(|q| q.bandwidth_bytes_per_second[0] = 1.0);
    let first = noisy.iter().take_while(|l| !matches!(l, Line::Quad(q) if q.launch == 7)).count();
    assert_eq!(decide(&plan(1.25), &noisy[..first], false).map(|v| v.decision), None);
    let verdict = decided(&plan(1.25), &noisy);
    assert_eq!((verdict.decision, verdict.looks), (Decision::Admit, 2), "{verdict:?}");
    // A record is judged like the run that wrote it: the first look stays undecided.
    let verdict = decide(&plan(1.25), &noisy, true).unwrap();
    assert_eq!(verdict.looks, 2);
}

#[test]
fn a_ratio_that_drifts_beyond_its_noise_is_invalid_never_decline() {
    let verdict = decided(&plan(1.25), &lines(80, |i| 1.0 + 0.002 * i as f64));
    assert_eq!(verdict.decision, Decision::Invalid);
    assert!(verdict.reasons[0].starts_with("drift beyond noise"), "{verdict:?}");
}

#[test]
fn throttled_clocks_are_invalid() {
    let mut hot = lines(20, |_| 1.4);
    if let Some(Line::LaunchEnd(end)) = hot.last_mut() {
        end.throttle_events = Some(3);
    }
    let verdict = decided(&plan(1.25), &hot);
    assert_eq!(verdict.decision, Decision::Invalid);
    assert_eq!(verdict.reasons, ["throttled clocks: 3 throttling events during the run"]);
}

#[test]
fn an_interrupted_run_decides_nothing() {
    let short = lines(15, |_| 1.4);
    assert!(decide(&plan(1.25), &short, false).is_none());
    let verdict = decide(&plan(1.25), &short, true).unwrap();
    assert_eq!(verdict.decision, Decision::Invalid);
    assert!(verdict.reasons[0].contains("15 usable quads of 20"), "{verdict:?}");
}

#[test]
fn a_time_that_is_no_time_never_passes() {
    for bad in [f64::NAN, 0.0, -1.0, f64::INFINITY] {
        let mut broken = lines(20, |_| 1.4);
        quads(&mut broken).next().unwrap().samples[2].decode_ms = bad;
        assert_eq!(decided(&plan(1.25), &broken).decision, Decision::Invalid, "{bad}");
    }
}

#[test]
fn a_rule_without_data_is_not_fulfilled() {
    let mut p = plan(1.25);
    p.rules.push(Rule {
        ratio: Metric::HostBytes,
        upper_bound_at_most: Some(1.1),
        lower_bound_at_least: None,
        at: None,
        arm: None,
    });
    let mut silent = lines(80, |_| 1.4);
    for line in &mut silent {
        if let Line::LaunchEnd(end) = line {
            end.host_bytes.clear();
        }
    }
    let verdict = decided(&p, &silent);
    assert_eq!(verdict.decision, Decision::Inconclusive);
    assert!(verdict.reasons.iter().any(|r| r.contains("1 of 2 rules have no data")));
    // With memory reported, 16 launches are enough for a bound.
    assert_eq!(decided(&p, &lines(80, |_| 1.4)).decision, Decision::Admit);
}

#[test]
fn an_upper_limit_mirrors_a_lower_one() {
    let mut p = plan(1.0);
    p.rules[0].lower_bound_at_least = Some(0.98);
    p.rules[0].upper_bound_at_most = Some(1.02);
    assert_eq!(decided(&p, &lines(20, |_| 1.0)).decision, Decision::Admit);
    assert_eq!(decided(&p, &lines(20, |_| 1.1)).decision, Decision::Decline);
    assert_eq!(decided(&p, &lines(20, |_| 0.9)).decision, Decision::Decline);
}

#[test]
fn lines_survive_json() {
    for line in lines(5, |_| 1.0) {
        let text = serde_json::to_string(&line).unwrap();
        assert_eq!(serde_json::from_str::<Line>(&text).unwrap(), line);
        let more = text.replacen('{', "{\"unknown\":1,", 1);
        assert!(serde_json::from_str::<Line>(&more).is_err(), "{more}");
    }
}

#[test]
fn a_single_sample_is_invalid_and_says_how_many_were_needed() {
    let verdict = decide(&plan(1.25), &lines(1, |_| 9.0), true).unwrap();
    assert_eq!(verdict.decision, Decision::Invalid);
    assert_eq!(verdict.reasons, ["too few samples: 1 usable quads of 20"]);
    assert_eq!(exit(verdict.decision, Some(Decision::Admit)), crate::units::Exit::Inconclusive);
}
