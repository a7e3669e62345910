//! What is fed: each reads its input as a user's command would, and goes on with what it accepts.

use assay::harness::records::{junit, load, markdown, summarise};
use assay::harness::report::{compare_runs, render_comparison, write_report};
use assay::harness::scenario::{Plan, ScenarioFile};
use assay::harness::{GateFile, Pattern, PlanOptions, devices, plan};
use std::collections::BTreeMap;
use std::path::Path;

/// A gate file: read, planned, and its message printed.
pub(crate) fn gate(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else { return };
    let path = crate::root().join("gates/fuzz.yaml");
    match GateFile::parse(&path, text, &BTreeMap::new()) {
        Err(error) => assert!(!error.to_string().is_empty()),
        Ok(gate) => {
            let options = PlanOptions {
                root: crate::root().to_owned(),
                long: false,
                devices: devices(),
                patterns: vec![Pattern::parse("all")],
                partition: None,
            };
            if let Err(error) = plan(vec![gate], &options) {
                assert!(!error.to_string().is_empty());
            }
        }
    }
}

/// A scenario file: read and expanded.
pub(crate) fn scenario(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else { return };
    match ScenarioFile::parse(Path::new("fuzz.yaml"), text) {
        Err(error) => assert!(!error.to_string().is_empty()),
        Ok(file) => drop(Plan::of(&file)),
    }
}

/// Lines of trials behind a `run.json` that fits: loaded, summarised and rendered.
///
/// The first line of the input is the `run.json`, the rest are the lines.
pub(crate) fn run(input: &[u8]) {
    let folder = scratch("run");
    let end = input.iter().position(|b| *b == b'\n').map_or(input.len(), |at| at + 1);
    std::fs::write(folder.join("run.json"), &input[..end]).unwrap();
    std::fs::write(folder.join("trials.jsonl"), &input[end..]).unwrap();
    match load(&folder) {
        Err(error) => assert!(!error.to_string().is_empty()),
        Ok(run) => {
            let summary = summarise(&run);
            assert!(!junit(&summary, &run.trials).is_empty());
            assert!(!markdown(&summary).is_empty());
        }
    }
    let _ = write_report(&folder);
}

/// A `record.json` of either kind: rendered, and compared with itself.
pub(crate) fn record(input: &[u8]) {
    let folder = scratch("record");
    std::fs::write(folder.join("record.json"), input).unwrap();
    if write_report(&folder).is_ok()
        && let Ok(comparison) = compare_runs(&folder, &folder, &[])
    {
        assert!(!render_comparison(&comparison).is_empty());
    }
}

/// A folder per target, removed by whoever cleans the target folder.
fn scratch(name: &str) -> std::path::PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("fuzz").join(name);
    std::fs::create_dir_all(&path).unwrap();
    path
}
