//! Scenario files that are right, and one of every kind that is wrong, with its message.

use super::*;
use std::path::Path;

const GOOD: &str = "\
scenario: example
question: Is it faster?
track: performance
gates: [chunk-consistency]
profiles:
  cpu: { model: { synth: ../descriptors/tiny.json, seed: 18446744073709551615 } }
workload: { prompt_tokens: 8, decode_tokens: 4 }
arms:
  baseline: { policy: f32, threads: 1 }
  candidate: { policy: reference }
differs_in: [numerical_policy]
measure:
  warmup: 1
  quads: [20, 40]
  launches: 4
  metrics: [decode_tokens_per_second]
sweep: { prompt_tokens: [8, 16] }
admit_when:
  all:
    - { ratio: decode_tokens_per_second, lower_bound_at_least: 1.1, at: { prompt_tokens: 16 } }
expect_decision: { cpu: decline }
";

fn parse(text: &str) -> Result<ScenarioFile, String> {
    ScenarioFile::parse(Path::new("example.yaml"), text).map_err(|e| e.to_string())
}

#[test]
fn a_file_becomes_a_plan() {
    let file = parse(GOOD).unwrap();
    let plan = Plan::of(&file);
    let point = |prompt_tokens| Point { prompt_tokens, decode_tokens: 4, sequences: 1 };
    assert_eq!(plan.points, [point(8), point(16)]);
    assert_eq!((plan.looks.quads_per_launch, plan.candidates.len()), (5, 1));
    assert_eq!(plan.rules_for("candidate", point(8)).count(), 0);
    assert_eq!(plan.rules_for("candidate", point(16)).count(), 1);
    assert_eq!(file.spec.profiles.values().next().unwrap().model.value.seed, u64::MAX);
}

#[test]
fn mistakes_are_explained_at_their_place() {
    let cases = [
        (
            "question: Is it faster?",
            "quesiton: Is it faster?",
            "example.yaml:2:1: unknown key `quesiton`",
            "did you mean `question`?",
        ),
        (
            "launches: 4",
            "launches: 3",
            "example.yaml:14:",
            "the 20 quads of the first look cannot be spread evenly over 3 launches",
        ),
        ("[20, 40]", "[40, 20]", "example.yaml:14:", "looks must rise"),
        ("[20, 40]", "[4, 40]", "example.yaml:14:", "the first look needs at least 9"),
        ("[20, 40]", "[]", "example.yaml:14:", "at least one item"),
        ("  baseline:", "  base:", "example.yaml:9:3", "no arm is called `baseline`"),
        ("lower_bound_at_least: 1.1, ", "", "example.yaml:", "has no threshold"),
        ("1.1", "-1", "example.yaml:", "a ratio is positive and finite"),
        ("1.1", ".nan", "example.yaml:", "a ratio is positive and finite"),
        (
            "ratio: decode_tokens_per_second",
            "ratio: host_bytes",
            "example.yaml:",
            "decides but is not measured",
        ),
        (
            "at: { prompt_tokens: 16 }",
            "at: { prompt_tokens: 17 }",
            "example.yaml:",
            "no point of the sweep is meant",
        ),
        (
            "[decode_tokens_per_second]",
            "[decode_token_per_second]",
            "example.yaml:16:",
            "did you mean `decode_tokens_per_second`?",
        ),
        ("policy: f32", "policy: fp32", "example.yaml:9:", "did you mean `f32`?"),
        (
            "synth: ../descriptors/tiny.json, ",
            "",
            "example.yaml:6:",
            "neither a folder (`dir`) nor synthetic (`synth`)",
        ),
        ("warmup: 1", "warmup: 0", "example.yaml:13:", "at least one untimed run"),
        (
            "prompt_tokens: 8,",
            "prompt_tokens: 0,",
            "example.yaml:7:",
            "at least one prompt and one decode token",
        ),
        (
            "{ policy: reference }",
            "{ command: [other] }",
            "example.yaml:9:",
            "at least one candidate are builds of this engine",
        ),
        (
            "{ policy: reference }",
            "{ policy: reference, command: [other] }\n  third: {}",
            "example.yaml:9:",
            "keys of arms of this engine",
        ),
        (
            "{ policy: reference }",
            "{ build: HEAD, recorded: { report: r, arm: a } }\n  third: {}",
            "example.yaml:9:",
            "exclude each other",
        ),
        (
            "{ policy: reference }",
            "{ build: HEAD }",
            "example.yaml:9:",
            "is another build, `differs_in` lacks `build`",
        ),
        (
            "{ policy: reference }",
            "{ slowdown_ratio: 1.5 }",
            "example.yaml:9:",
            "a share between 0 and 1",
        ),
        (
            "threads: 1 }",
            "threads: 1, slowdown_ratio: 0.1 }",
            "example.yaml:9:",
            "a slower baseline would flatter the others",
        ),
        (
            "expect_decision",
            "error_rates: { series_quads: 400, pseudo_runs: 1000, real_runs: 30, quads: [20], launches: 4, slowdown_ratio: 0.02, at_most: 0.01, missed_at_most: 0.05 }\nexpect_decision",
            "example.yaml:21:",
            "two arms that are the same",
        ),
        ("warmup:", "turn: step\n  warmup:", "example.yaml:7:", "behind a prompt that runs once"),
        (
            "expect_decision",
            "error_rates: { series_quads: 400, series_parts: 3, pseudo_runs: 1000, real_runs: 30, quads: [20], launches: 4, slowdown_ratio: 0.02, at_most: 0.01, missed_at_most: 0.05 }\nexpect_decision",
            "example.yaml:21:",
            "the series has at most as many parts",
        ),
        ("scenario: example", "scenario: ../example", "example.yaml:1:", "is no scenario name"),
        ("[8, 16]", "[8, 8]", "example.yaml:17:", "distinct numbers"),
        ("18446744073709551615", "18446744073709551616", "example.yaml:6:", ""),
        ("{ cpu: decline }", "{ gpu: decline }", "example.yaml:21:", "one of `cpu`, `cuda`"),
        (
            "{ cpu: decline }",
            "{ cuda: admit }",
            "example.yaml:21:1",
            "on cuda, which has no profile",
        ),
        ("[chunk-consistency]", "[a, b, a]", "example.yaml:4:1", "the gate `a` is listed twice"),
        (
            "[decode_tokens_per_second]",
            "[decode_tokens_per_second, decode_tokens_per_second]",
            "example.yaml:16:3",
            "the metric `decode_tokens_per_second` is listed twice",
        ),
        (
            "[numerical_policy]",
            "[numerical_policy, build, numerical_policy]",
            "example.yaml:11:",
            "`numerical_policy` is listed twice",
        ),
        ("threads: 1", "threads: 0", "example.yaml:9:", "`threads` is a number from 1 to 1024"),
        ("threads: 1", "threads: 1025", "example.yaml:9:", "`threads` is a number from 1 to 1024"),
        (
            "{ policy: reference }",
            "{ fusions: [gate_up, gate_up] }",
            "example.yaml:9:",
            "`fusions` lists `gate_up` twice",
        ),
    ];
    for (right, wrong, place, words) in cases {
        assert!(GOOD.contains(right), "{right}");
        let message = parse(&GOOD.replacen(right, wrong, 1)).err();
        let message = message.unwrap_or_else(|| panic!("`{wrong}` was accepted"));
        assert!(message.starts_with(place), "`{wrong}`: expected {place}, found\n{message}");
        assert!(message.contains(words), "`{wrong}`: expected {words}, found\n{message}");
    }
}

#[test]
fn the_shipped_scenarios_are_well_formed() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let names: Vec<String> =
        scenarios(root, &[]).unwrap().iter().map(|f| f.name().to_owned()).collect();
    for expected in ["aa-cpu", "cpu-decode", "cpu-decode-peers"] {
        assert!(names.iter().any(|n| n == expected), "{expected} among {names:?}");
    }
    let error = scenarios(root, &["cpu-decod".into()]).unwrap_err().to_string();
    assert!(error.contains("no scenario is called `cpu-decod`") && error.contains("`cpu-decode`"));
}

#[test]
fn live_peers_run_one_sequence_behind_a_prompt_of_their_own() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let file = scenarios(root, &["cpu-context".into()]).unwrap().remove(0);
    assert_eq!(file.prefill(), crate::harness::scenario::PrefillUse::Once);
    assert!(!Plan::of(&file).peers.is_empty());
    let two = [("workload.sequences".to_owned(), "2".to_owned())].into_iter().collect();
    let error = file.with(&two).unwrap_err().to_string();
    assert!(error.contains("live peers run one sequence a sample"), "{error}");
}

#[test]
fn values_are_replaced_from_the_command_line_and_the_rule_is_not() {
    let set = |pairs: &[(&str, &str)]| {
        let set = pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        ScenarioFile::parse(Path::new("example.yaml"), GOOD).unwrap().with(&set)
    };
    let plain = set(&[("model", "./anywhere")]).unwrap();
    let changed = set(&[
        ("workload.decode_tokens", "16"),
        ("measure.quads", "[20]"),
        ("sweep.prompt_tokens", "[16, 32]"),
        ("arms.candidate.threads", "2"),
    ])
    .unwrap();
    let plan = Plan::of(&changed);
    assert_eq!(plan.points[1], Point { prompt_tokens: 32, decode_tokens: 16, sequences: 1 });
    assert_eq!(plan.looks.quads, [20]);
    assert_eq!(changed.arms()["candidate"].threads, Some(2));
    // The seed of 2^64 - 1 came through unharmed, and the digest knows of the change.
    assert_eq!(changed.spec.profiles.values().next().unwrap().model.value.seed, u64::MAX);
    assert_eq!(changed.text, plain.text);
    assert_ne!(changed.digest, plain.digest);

    let refused = |key, value| set(&[(key, value)]).unwrap_err().to_string();
    assert_eq!(
        refused("admit_when", "{ all: [] }"),
        "example.yaml: --set admit_when: a scenario lets `admit_when` stand as it is\n   = \
         expected: `model`, or a path below workload, sweep, measure, arms, profiles"
    );
    assert!(refused("worklod.decode_tokens", "4").contains("did you mean `workload`?"));
    let unknown = refused("workload.decode_tokns", "4");
    assert!(unknown.contains("unknown key `decode_tokns`"), "{unknown}");
    assert!(unknown.contains("did you mean `decode_tokens`?"), "{unknown}");
    let wrong = refused("measure.launches", "3");
    assert!(wrong.contains("cannot be spread evenly over 3 launches"), "{wrong}");
    assert!(refused("measure.launches", "[").contains("`[` is no YAML value"));
    assert!(refused("workload.decode_tokens.x", "1").contains("is no mapping"));
    for empty in ["workload..decode_tokens", "workload.", "workload.decode_tokens."] {
        assert!(refused(empty, "1").contains("a name between two dots is empty"), "{empty}");
    }
    // Another name would be an arm, or a profile, of its own.
    let arm = refused("arms.candidte.threads", "2");
    assert!(arm.contains("--set arms.candidte.threads: there is no arm `candidte`"), "{arm}");
    assert!(arm.contains("did you mean `candidate`?"), "{arm}");
    assert!(refused("profiles.cuda.model.seed", "2").contains("there is no profile `cuda`"));
    assert!(refused("arms.candidate.threads", "100000000").contains("from 1 to 1024"));
}

#[test]
fn what_a_file_names_must_be_there() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let text = GOOD.replace("../descriptors/tiny.json", "../descriptors/tiny-llama.json");
    let gates = ["chunk-consistenzy".to_owned(), "other".to_owned()];
    let check = |text: &str, gates: Option<&[String]>, set: &[(&str, &str)]| {
        let set = set.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        let file = ScenarioFile::parse(&root.join("scenarios/example.yaml"), text).unwrap();
        file.check_surroundings(gates, &set).map_err(|e| e.to_string())
    };
    assert_eq!(check(&text, None, &[]), Ok(()));
    let unknown = check(&text, Some(&gates), &[]).unwrap_err();
    assert!(unknown.contains("`gates` names `chunk-consistency`, which is no gate"), "{unknown}");
    assert!(unknown.contains("did you mean `chunk-consistenzy`?"), "{unknown}");
    assert_eq!(check(&text.replace("[chunk-consistency]", "[other]"), Some(&gates), &[]), Ok(()));
    let absent = check(GOOD, None, &[]).unwrap_err();
    assert!(
        absent.contains("example.yaml:6:") && absent.contains("tiny.json does not exist"),
        "{absent}"
    );
    // 2,048 positions hold a prompt of 2,044 and a decode of 4, and no token more.
    assert_eq!(check(&text.replace("[8, 16]", "[16, 2044]"), None, &[]), Ok(()));
    let long = check(&text.replace("[8, 16]", "[16, 2045]"), None, &[]).unwrap_err();
    assert!(long.contains("a workload has 2049 tokens"), "{long}");
    let llama = root.join("tests/fixtures/llama").display().to_string();
    let set = [("model", llama.as_str())];
    assert_eq!(check(GOOD, None, &set), Ok(()), "the profile's model is not read");
    let long = check(&GOOD.replace("[8, 16]", "[16, 2045]"), None, &set).unwrap_err();
    assert!(long.contains("holds 2048"), "{long}");
    let quality = "quality: { corpus: none.txt, window_tokens: 8, corpus_tokens: 8, budgets: [{ metric: \
                   logit_rms, at_most: 1 }] }\nexpect_decision";
    let lost = check(&text.replace("expect_decision", quality), None, &[]).unwrap_err();
    assert!(lost.contains("none.txt does not exist"), "{lost}");
}
