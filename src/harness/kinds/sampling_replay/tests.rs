//! The shipped gate holds; each check fails on a subject with one planted defect.

use super::check::Subject;
use super::gate::NamedCheck;
use super::spec::Check;
use crate::backend::cpu::{Softmax64, sample};
use crate::generation::{Sampler, Sampling, Seed};
use crate::harness::testing::problems;
use crate::units::SplitMix64;
use std::path::Path;

const FILE: &str = include_str!("../../../../gates/sampling-replay.yaml");

/// The file without the checks that run this program: the test binary is another one.
fn without_commands() -> &'static str {
    FILE.split("  # Command lines").next().unwrap()
}

#[test]
fn the_shipped_gate_holds() {
    assert_eq!(problems(without_commands()), [""; 0]);
}

/// Names of the shipped checks that fail for a subject.
fn failing(subject: &Subject) -> Vec<String> {
    #[derive(serde::Deserialize)]
    struct File {
        checks: Vec<NamedCheck>,
    }
    let File { checks } =
        crate::harness::parse_yaml(Path::new("gate.yaml"), without_commands()).unwrap();
    let failing = checks.iter().filter(|c| c.check.run(subject).is_err());
    failing.map(|c| c.name.clone()).collect()
}

#[test]
fn a_seed_that_passes_through_a_float_is_caught() {
    let subject = Subject {
        words: |seed, count| {
            let mut rng = SplitMix64::new(seed as f64 as u64);
            (0..count).map(|_| rng.next_word()).collect()
        },
        ..Subject::PRODUCT
    };
    assert_eq!(failing(&subject), ["words_of_seed_2_53_plus_1"]);
    let text = Subject {
        seed: |text| text.parse::<f64>().map(|s| s as u64).map_err(|e| e.to_string()),
        ..Subject::PRODUCT
    };
    assert!(failing(&text).contains(&"seed_2_53_plus_1".into()));
}

#[test]
fn wrong_boundaries_are_caught() {
    // `>=` instead of `>`: a hit takes the id before.
    let not_strict = Subject {
        select: |logits, temperature, unit| {
            let softmax = Softmax64::new(logits, temperature).map_err(|e| e.to_string())?;
            Ok(softmax.select((unit - 1e-17).max(0.0).next_down()))
        },
        ..Subject::PRODUCT
    };
    assert!(failing(&not_strict).contains(&"a_hit_on_a_boundary_takes_the_next_id".into()));
    // The last id instead of the last one with mass.
    let last_id = Subject {
        select: |logits, temperature, unit| match unit > 0.999 {
            true => Ok(logits.len() as u32 - 1),
            false => sample(logits, temperature, || unit).map_err(|e| e.to_string()),
        },
        ..Subject::PRODUCT
    };
    assert_eq!(failing(&last_id), ["largest_unit_skips_ids_without_mass"]);
    // The first id for u = 0, mass or not.
    let first_id = Subject {
        select: |logits, temperature, unit| match unit == 0.0 {
            true => Ok(0),
            false => sample(logits, temperature, || unit).map_err(|e| e.to_string()),
        },
        ..Subject::PRODUCT
    };
    assert_eq!(failing(&first_id), ["smallest_unit_skips_ids_without_mass"]);
    let no_temperature = Subject {
        select: |logits, _, unit| sample(logits, 1.0, || unit).map_err(|e| e.to_string()),
        ..Subject::PRODUCT
    };
    assert_eq!(failing(&no_temperature), ["tenths_at_one_half_above"]);
}

#[test]
fn a_second_word_per_token_is_caught() {
    // A sampler that starts one word late gives other tokens.
    let late = Subject {
        sampler: |sampling, vocab| {
            let seed = Seed(sampling.seed.0.wrapping_add(0x9e37_79b9_7f4a_7c15));
            Sampler::new(Sampling { seed, ..sampling }, vocab, vocab)
        },
        ..Subject::PRODUCT
    };
    let failing = failing(&late);
    assert!(failing.contains(&"replay_1000_ids".into()), "{failing:?}");
}

#[test]
fn a_loop_that_forgets_its_seed_is_caught() {
    let subject = Subject {
        generate: |model, request, receive| {
            let sampling = Sampling { seed: Seed(0), ..request.sampling };
            let request = crate::generation::Request { sampling, ..request.clone() };
            crate::generation::generate(model, &request, receive)
        },
        ..Subject::PRODUCT
    };
    assert_eq!(failing(&subject), ["streaming_or_not_the_same_tokens"]);
}

#[test]
fn refusals_that_do_not_come_are_caught() {
    let lenient = Subject {
        temperature: |text| text.parse::<f64>().map_err(|e| e.to_string()),
        seed: |text| Ok(text.parse::<f64>().unwrap_or(0.0) as u64),
        sampler: |sampling, _| Sampler::new(sampling, 2, 2),
        ..Subject::PRODUCT
    };
    let failing = failing(&lenient);
    let expected = [
        "temperature_negative",
        "temperature_infinite",
        "temperature_nan",
        "temperature_that_overflows",
        "temperature_that_underflows",
        "temperature_that_is_a_word",
        "temperature_minus_zero",
        "seed_negative",
        "seed_2_64",
        "seed_with_an_exponent",
        "seed_hexadecimal",
        "short_row",
    ];
    for name in expected {
        assert!(failing.contains(&name.into()), "{name} passed");
    }
}

#[test]
fn command_lines_are_judged_by_code_message_and_silence() {
    let judge = |code, stdout, stderr| {
        let expected = "error: temperature -1 is negative";
        super::command::judge(code, stdout, stderr, (64, expected, Some("no/such")))
    };
    assert!(judge(Some(64), "", "error: temperature -1 is\nnegative\n").is_ok());
    assert!(judge(Some(74), "", "is negative").unwrap_err().contains("expected exit code 64"));
    assert!(judge(None, "", "is negative").unwrap_err().contains("a signal"));
    assert!(judge(Some(64), "text", "is negative").unwrap_err().contains("on stdout"));
    assert!(judge(Some(64), "", "no").unwrap_err().contains("expected stderr to say"));
    assert!(judge(Some(64), "", "is negative: no/such").unwrap_err().contains("no word of"));
}

#[test]
fn checks_that_decide_nothing_are_refused() {
    let refused = |check: &str| {
        let check: Check = crate::harness::parse_yaml(Path::new("check.yaml"), check).unwrap();
        check.validate().unwrap_err()
    };
    assert!(refused("refuse_text: { error: x }").contains("exactly one"));
    assert!(refused("refuse_text: { seed: '1', error: ' ' }").contains("without a message"));
    assert!(refused("command: { args: [], exit: 64, stderr: '' }").contains("does not tell why"));
    assert!(refused("accept_text: {}").contains("expected `temperature` or `seed`"));
}
