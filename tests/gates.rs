//! Every gate of the project as a test of its own: `cargo test --test gates -- FILTER`.

#![expect(clippy::print_stderr, reason = "a test runner of its own speaks to people")]

use assay::harness::records::{Counts, RunSummary};
use assay::harness::run::Launch;
use assay::units::Exit;
use libtest_mimic::Arguments;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments = match <Arguments as clap::Parser>::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => {
            let _ = error.print();
            return if error.use_stderr() { Exit::Usage } else { Exit::Success }.into();
        }
    };
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    // One folder, replaced every time: `assay gates run` is the way to keep records.
    let out = Path::new(env!("CARGO_TARGET_TMPDIR")).join("gates");
    let _ = std::fs::remove_dir_all(&out);
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let launch = Launch {
        root: Some(root),
        selection: vec!["all".to_owned()],
        long: false,
        set: Default::default(),
        partition: None,
        jobs: arguments.test_threads.unwrap_or(processors),
        fail_fast: false,
        shuffle: None,
        resume: None,
        out,
        program: env!("CARGO_BIN_EXE_assay").into(),
        command: std::env::args().collect(),
        interrupted: Default::default(),
    };
    let result = launch.plan().map_err(|e| e.to_string());
    match result.and_then(|l| l.run(Some(&arguments)).map_err(|e| e.to_string())) {
        Ok(None) => ExitCode::SUCCESS,
        Ok(Some((summary, _))) => {
            say(&summary);
            summary.exit().into()
        }
        Err(message) => {
            eprintln!("error: {message}");
            Exit::Usage.into()
        }
    }
}

#[expect(clippy::print_stderr, reason = "the output of a test runner")]
fn say(summary: &RunSummary) {
    let Counts { pass, skip, measured, .. } = summary.counts;
    eprintln!("{pass} passed, {skip} skipped, {measured} measured");
    for sentence in &summary.run.unestablished {
        eprintln!("not established: {sentence}");
    }
}
