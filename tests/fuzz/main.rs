//! Every parser under mutated inputs: it answers, and never panics, hangs, or gives an answer that
//! breaks a promise.
//!
//! `cargo test` replays the corpora and a fixed number of mutations. Longer:
//!
//!     ASSAY_FUZZ_CPU_SECONDS=600 ASSAY_FUZZ_SEED=1 cargo test --test fuzz -- --ignored

mod capture;
mod engine;
mod folder;
mod fuzzer;
mod harness;
mod mutate;
mod watch;

use capture::{CAPTURE, MANIFEST, PROMPTS};
use engine::{CONFIG, CONVERSATION, DESCRIPTOR, SAFETENSORS, STREAM, TEMPLATE};
use folder::{GENERATION_CONFIG, INDEX, SIDECAR, TOKENIZER};
use fuzzer::Target;
use harness::{GATE, RECORD, RUN, SCENARIO};
use std::io::Write as _;
use std::time::Duration;

macro_rules! targets {
    ($($name:ident: $target:ident, $least:literal;)*) => {
        mod replay {
            $(#[test]
            fn $name() {
                super::$target.replay().assert_clean(&super::$target, $least);
            })*
        }
        mod hunt {
            $(#[test]
            #[ignore = "runs for ASSAY_FUZZ_CPU_SECONDS of processor time (600 unless set)"]
            fn $name() {
                super::hunt(&super::$target, $least);
            })*
        }
    };
}

targets! {
    config: CONFIG, 25;
    descriptor: DESCRIPTOR, 15;
    safetensors_header: SAFETENSORS, 12;
    index: INDEX, 10;
    sidecar: SIDECAR, 5;
    generation_config: GENERATION_CONFIG, 5;
    tokenizer: TOKENIZER, 5;
    template: TEMPLATE, 12;
    conversation: CONVERSATION, 6;
    token_stream: STREAM, 6;
    gate_file: GATE, 20;
    scenario_file: SCENARIO, 20;
    run_folder: RUN, 8;
    record: RECORD, 8;
    manifest: MANIFEST, 6;
    prompts: PROMPTS, 7;
    capture: CAPTURE, 5;
}

fn hunt(target: &Target, least: usize) {
    let number = |name: &str, default: u64| {
        std::env::var(name).ok().map_or(default, |v| v.parse().expect("a whole number"))
    };
    let seconds = number("ASSAY_FUZZ_CPU_SECONDS", 600);
    let report = target.hunt(Duration::from_secs(seconds), number("ASSAY_FUZZ_SEED", 1));
    // Nobody is left to tell when stderr is closed.
    _ = writeln!(
        std::io::stderr(),
        "{}: {} inputs, {} signatures, {} findings in {seconds} s of processor time",
        target.name,
        report.inputs,
        report.signatures.len(),
        report.broken.len()
    );
    report.assert_clean(target, least);
}

/// The fuzzer itself: a target that panics is reported with an input that is as small as possible.
#[test]
fn a_target_that_panics_is_reported() {
    static PLANTED: Target = Target {
        name: "planted",
        folders: &["tests/corpus/token-stream"],
        dictionary: &["!"],
        run: |bytes| {
            assert!(!bytes.contains(&b'!'), "planted");
            String::new()
        },
    };
    let report = PLANTED.replay();
    assert!(!report.broken.is_empty());
    for (input, reason) in &report.broken {
        assert_eq!((input.as_slice(), reason.as_str()), (b"!".as_slice(), "planted"));
    }
}
