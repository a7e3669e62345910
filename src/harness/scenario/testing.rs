//! Made-up plans and records for tests.

use super::*;
use crate::harness::stats::LookPlan;
use crate::units::SplitMix64;
use std::collections::BTreeMap;

/// A plan with one rule: decode at least `threshold` times as fast.
pub(in crate::harness) fn plan(threshold: f64) -> Plan {
    Plan {
        scenario: "made-up".into(),
        baseline: "baseline".into(),
        candidates: vec!["candidate".into()],
        peers: Vec::new(),
        points: vec![Point { prompt_tokens: 16, decode_tokens: 8, sequences: 1 }],
        warmup: 1,
        turn: Turn::Sample,
        looks: LookPlan { quads: vec![20, 40, 80], quads_per_launch: 5 },
        metrics: vec![Metric::DecodeTokensPerSecond, Metric::HostBytes],
        rules: vec![Rule {
            ratio: Metric::DecodeTokensPerSecond,
            lower_bound_at_least: Some(threshold),
            upper_bound_at_most: None,
            at: None,
            arm: None,
        }],
    }
}

/// Records of a run whose candidate is `ratio(i)` times as fast as its baseline in quad `i`.
pub(in crate::harness) fn lines(quads: usize, ratio: impl Fn(usize) -> f64) -> Vec<Line> {
    seeded_lines(4, quads, ratio)
}

/// As [`lines`], with other noise.
pub(in crate::harness) fn seeded_lines(
    seed: u64,
    quads: usize,
    ratio: impl Fn(usize) -> f64,
) -> Vec<Line> {
    let mut rng = SplitMix64::new(seed);
    let mut lines = Vec::new();
    for i in 0..quads {
        let launch = (i / 5) as u32;
        if i % 5 == 0 {
            let arm =
                LaunchedArm { ids: BTreeMap::new(), tokens: vec!["t".into()], ready_ms: None };
            let arms = [("baseline".into(), arm.clone()), ("candidate".into(), arm)].into();
            lines.push(Line::Launch(Launch { launch, start_ms: 900.0, arms }));
        }
        let mut sample = |slot: Slot| Sample {
            prefill_ms: 10.0,
            decode_ms: 100.0 * (1.0 + 0.01 * rng.next_unit())
                / if slot == Slot::B { ratio(i) } else { 1.0 },
            tokens: "t".into(),
        };
        lines.push(Line::Quad(QuadLine {
            launch,
            point: 0,
            arm: "candidate".into(),
            samples: Slot::QUAD.map(&mut sample),
            bandwidth_bytes_per_second: vec![1.0e10, 1.05e10, 1.02e10],
        }));
        if i % 5 == 4 {
            let host_bytes = [("baseline".into(), 1000), ("candidate".into(), 1000)].into();
            let end = LaunchEnd { launch, host_bytes, throttle_events: None, device: None };
            lines.push(Line::LaunchEnd(end));
        }
    }
    lines
}
