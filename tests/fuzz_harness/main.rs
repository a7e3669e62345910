//! Whatever a spec file or a record holds, it is read or refused: no panic, no hang.
//!
//! `cargo test --test fuzz_harness` replays the corpora. `ASSAY_FUZZ_SECONDS=600` goes on with
//! mutations of them for that long per target, from a seed that it prints.
//! An input that breaks something is written to `target/tmp` and belongs into `tests/corpus`.

mod mutate;
mod targets;

use mutate::Mutator;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// An input that takes longer is a hang.
const LONGEST: Duration = Duration::from_secs(10);

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The files of folders, by path.
fn corpus(folders: &[&str], extension: &str) -> Vec<Vec<u8>> {
    let mut files: Vec<PathBuf> = folders
        .iter()
        .flat_map(|f| std::fs::read_dir(root().join(f)).into_iter().flatten())
        .map(|e| e.unwrap().path())
        .filter(|p| p.extension().is_some_and(|e| e == extension))
        .collect();
    files.sort();
    files.iter().map(|f| std::fs::read(f).unwrap()).collect()
}

/// Runs one input; says what went wrong.
fn tried(target: fn(&[u8]), input: &[u8]) -> Result<(), String> {
    let start = Instant::now();
    let result = catch_unwind(AssertUnwindSafe(|| target(input)));
    let took = start.elapsed();
    match result {
        Err(_) => Err("it panicked".to_owned()),
        Ok(()) if took > LONGEST => Err(format!("it took {took:?}")),
        Ok(()) => Ok(()),
    }
}

/// Replays the corpus, then mutations of it.
#[expect(clippy::print_stdout, reason = "a fuzzer says what it tried")]
fn fuzz(name: &str, seeds: &[Vec<u8>], target: fn(&[u8])) {
    assert!(seeds.len() >= 3, "{name}: {} seeds", seeds.len());
    let check = |input: &[u8], what: &str| {
        if let Err(why) = tried(target, input) {
            let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}.input"));
            std::fs::write(&file, input).unwrap();
            panic!("{name}, {what}: {why}; the input is in {}", file.display());
        }
    };
    for (at, seed) in seeds.iter().enumerate() {
        check(seed, &format!("file {at} of the corpus"));
    }
    let seconds = std::env::var("ASSAY_FUZZ_SECONDS").ok().and_then(|s| s.parse::<u64>().ok());
    let seed = std::time::UNIX_EPOCH.elapsed().map_or(1, |t| t.as_nanos() as u64);
    let mut mutator = Mutator::new(seed);
    let end = Instant::now() + Duration::from_secs(seconds.unwrap_or(0));
    let mut done = 0;
    while Instant::now() < end {
        let input = mutator.mutate(seeds);
        check(&input, &format!("mutation {done} of seed {seed}"));
        done += 1;
    }
    if seconds.is_some() {
        println!("{name}: {done} mutations of seed {seed}, none broke anything");
    }
}

#[test]
fn gate_files() {
    let seeds =
        corpus(&["gates", "gates/regions", "tests/harness/spec", "tests/corpus/gate"], "yaml");
    fuzz("gate", &seeds, targets::gate);
}

#[test]
fn scenario_files() {
    let seeds = corpus(&["scenarios", "tests/harness/scenario", "tests/corpus/scenario"], "yaml");
    fuzz("scenario", &seeds, targets::scenario);
}

#[test]
fn run_folders() {
    fuzz("run", &corpus(&["tests/corpus/run"], "jsonl"), targets::run);
}

#[test]
fn committed_records() {
    fuzz("record", &corpus(&["tests/corpus/record"], "json"), targets::record);
}

/// The harness of the fuzzer itself: a target that panics and one that is slow are both reported.
#[test]
fn a_broken_target_is_noticed() {
    assert_eq!(tried(|_| panic!("planted"), b""), Err("it panicked".to_owned()));
    assert_eq!(tried(|_| (), b""), Ok(()));
}
