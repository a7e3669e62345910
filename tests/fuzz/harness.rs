//! What the harness reads: gates, scenarios, records of runs. Each is read as a user's command would
//! read it, and what is accepted is used.

use crate::fuzzer::{Target, kind_of_message, root, scratch};
use assay::harness::records::{junit, load, markdown, summarise};
use assay::harness::report::{compare_runs, render_comparison, write_report};
use assay::harness::scenario::{Plan, ScenarioFile};
use assay::harness::{GateFile, Pattern, PlanOptions, devices, plan};
use std::collections::BTreeMap;
use std::path::Path;

/// A gate file: read, planned, and its message printed.
pub(crate) static GATE: Target = Target {
    name: "gate",
    folders: &["gates", "gates/regions", "tests/harness/spec"],
    dictionary: &["gate: ", "kind: ", "policy: ", "[cpu]", "long: ", "tests/fixtures/llama"],
    run: |input| {
        let Ok(text) = std::str::from_utf8(input) else { return "no text".to_owned() };
        let path = root().join("gates/fuzz.yaml");
        let gate = match GateFile::parse(&path, text, &BTreeMap::new()) {
            Err(error) => return kind_of_message(&error.to_string()),
            Ok(gate) => gate,
        };
        let options = PlanOptions {
            root: root(),
            long: false,
            devices: devices(),
            patterns: vec![Pattern::parse("all")],
            partition: None,
        };
        match plan(vec![gate], &options) {
            Err(error) => kind_of_message(&error.to_string()),
            Ok(_) => "planned".to_owned(),
        }
    },
};

/// A scenario file: read and expanded.
pub(crate) static SCENARIO: Target = Target {
    name: "scenario",
    folders: &["scenarios", "tests/harness/scenario"],
    dictionary: &["quads: ", "arms:", "candidate: ", "admit_when:", "[20, 40]", "profiles:"],
    run: |input| {
        let Ok(text) = std::str::from_utf8(input) else { return "no text".to_owned() };
        match ScenarioFile::parse(Path::new("fuzz.yaml"), text) {
            Err(error) => kind_of_message(&error.to_string()),
            Ok(file) => format!("{} arms", Plan::of(&file).arms().count()),
        }
    },
};

/// A run's folder: loaded, summarised and rendered. The first line of the input is `run.json`, the
/// rest are the lines of trials.
pub(crate) static RUN: Target = Target {
    name: "run",
    folders: &["tests/corpus/run"],
    dictionary: &["\"verdict\":", "\"pass\"", "\"trial\":", "\"measured\""],
    run: |input| {
        let folder = scratch("run");
        let end = input.iter().position(|b| *b == b'\n').map_or(input.len(), |at| at + 1);
        std::fs::write(folder.join("run.json"), &input[..end]).unwrap();
        std::fs::write(folder.join("trials.jsonl"), &input[end..]).unwrap();
        let written = write_report(&folder);
        match load(&folder) {
            Err(error) => kind_of_message(&error.to_string()),
            Ok(run) => {
                let summary = summarise(&run);
                assert!(!junit(&summary, &run.trials).is_empty());
                assert!(!markdown(&summary).is_empty());
                format!("{} trials, report {}", run.trials.len().min(9), written.is_ok())
            }
        }
    },
};

/// A `record.json` of any kind: rendered, and compared with itself.
pub(crate) static RECORD: Target = Target {
    name: "record",
    folders: &["tests/corpus/record"],
    dictionary: &["\"kind\":", "\"schema_version\":", "\"arms\":", "\"lines\":"],
    run: |input| {
        let folder = scratch("record");
        std::fs::write(folder.join("record.json"), input).unwrap();
        if let Err(error) = write_report(&folder) {
            return kind_of_message(&error.to_string());
        }
        match compare_runs(&folder, &folder, &[]) {
            Err(error) => kind_of_message(&error.to_string()),
            Ok(comparison) => {
                assert!(!render_comparison(&comparison).is_empty());
                "compared".to_owned()
            }
        }
    },
};
