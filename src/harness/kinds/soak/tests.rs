//! The shipped gates hold on a short soak; each thing a soak may leave behind is found.

use super::judge::{Limits, Seen};
use super::requests::Counts;
use crate::harness::testing::{gate, problems, root};

const FILE: &str = include_str!("../../../../gates/soak-llama.yaml");

#[test]
fn a_short_soak_holds() {
    let text = FILE.replace("short_duration_ms: 2000", "short_duration_ms: 700");
    assert_ne!(text, FILE);
    assert_eq!(problems(&text), [""; 0]);
}

#[test]
fn thresholds_that_say_nothing_are_refused() {
    let planned = |from: &str, to: &str| {
        let text = FILE.replace(from, to);
        assert_ne!(text, FILE);
        let scope = crate::harness::PlanScope {
            device: crate::backend::DeviceKind::Cpu,
            policy: None,
            long: false,
            root: root(),
            base: root(),
        };
        gate(&text).unwrap().kind.cases(&scope).map_err(|fault| fault.message)
    };
    let ratio = planned("latency_ratio_at_most: 2", "latency_ratio_at_most: 0.5");
    assert_eq!(ratio.unwrap_err(), "not a finite ratio of at least 1");
    let short = planned("short_duration_ms: 2000", "short_duration_ms: 0");
    assert_eq!(short.unwrap_err(), "not between 1 and `duration_ms`");
}

fn seen() -> Seen {
    Seen {
        counts: Counts { cancelled: 1, forks: 1, refused: 1, recomputed: 1, ..Counts::default() },
        answers: vec!["a".into(); 12],
        latencies_ms: vec![1.0, 9.0, 1.2, 1.1, 1.0, 1.0, 1.3, 5.0, 1.1, 1.0, 1.2, 7.0],
        left_bytes: 0,
        resident_bytes: Some((1000, 1500)),
    }
}

#[test]
fn every_leftover_is_a_failure() {
    let limits = Limits { resident_growth_bytes: 1000, latency_ratio: 1.5 };
    let problems = |change: fn(&mut Seen)| {
        let mut seen = seen();
        change(&mut seen);
        seen.problems(limits).join("; ")
    };
    assert_eq!(problems(|_| ()), "", "single slow answers are other load");
    let idle = problems(|s| (s.counts.forks, s.counts.refused) = (0, 0));
    assert_eq!(
        idle,
        "the traffic held no fork: nothing is known of one; \
         the traffic held no refusal: nothing is known of one"
    );
    let few = problems(|s| s.answers.truncate(8));
    assert!(few.contains("only 8 answers came in that time, 9 are needed"), "{few}");
    let slower = problems(|s| s.latencies_ms[8..].iter_mut().for_each(|l| *l *= 2.0));
    assert!(slower.starts_with("latency grows: the fastest answer of the last third took 2.00"));
    assert!(problems(|s| s.latencies_ms.fill(f64::NAN)).contains("latency grows"), "NaN");
    let bits = problems(|s| s.answers[7] = "b".into());
    assert_eq!(bits, "answer 8 to the same request has other bits");
    assert_eq!(problems(|s| s.left_bytes = 64), "64 bytes of dropped sequences are left");
    let grown = problems(|s| s.resident_bytes = Some((1000, 2001)));
    assert_eq!(grown, "resident memory grew by 1001 bytes, allowed are 1000");
    assert_eq!(problems(|s| s.resident_bytes = Some((2000, 1000))), "", "shrinking is fine");
}
