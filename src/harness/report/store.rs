//! Report folders: `record.json` and the page rendered from it.

use super::index::{Entry, render_index};
use super::{render_decision, render_error_rates, render_gate_run, render_survey};
use crate::harness::mutate::Survey;
use crate::harness::records::{GateRun, RecordError, RunRecord, TrialRecord, load};
use crate::harness::scenario::{ErrorRun, ScenarioRun, load_scenario_run};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

const RECORD: &str = "record.json";
const PAGE: &str = "report.html";
const INDEX: &str = "index.html";

/// A report could not be made.
#[derive(Debug, thiserror::Error)]
pub enum ReportError {
    #[error(transparent)]
    Record(#[from] RecordError),
    #[error("{}: this is neither a run folder nor a report: {reason}", path.display())]
    NoRecord { path: PathBuf, reason: String },
    #[error("{}: {message}", path.display())]
    Content { path: PathBuf, message: String },
    #[error("cannot write {}: {source}", path.display())]
    Write { path: PathBuf, source: std::io::Error },
    #[error("cannot read {}: {source}", path.display())]
    Read { path: PathBuf, source: std::io::Error },
}

/// What a report is made from.
pub(super) enum Record {
    Decision(Box<ScenarioRun>),
    Gates(Box<GateRun>),
    Survey(Box<Survey>),
    Errors(Box<ErrorRun>),
}

/// `record.json` of a gate run.
#[derive(Serialize, Deserialize)]
struct GateRunFile {
    run: RunRecord,
    trials: Vec<TrialRecord>,
}

impl Record {
    /// Reads a run folder (`run.json` beside lines) or a report folder (`record.json`).
    pub(super) fn open(folder: &Path) -> Result<Record, ReportError> {
        let read = |name: &str| -> Result<String, ReportError> {
            let path = folder.join(name);
            std::fs::read_to_string(&path).map_err(|source| ReportError::Read { path, source })
        };
        if folder.join(RECORD).is_file() && !folder.join("run.json").is_file() {
            return Record::parse(&folder.join(RECORD), &read(RECORD)?);
        }
        if !folder.join("run.json").is_file() {
            let reason = "it holds no run.json and no record.json".into();
            return Err(ReportError::NoRecord { path: folder.to_owned(), reason });
        }
        let value: Value = content(&folder.join("run.json"), &read("run.json")?)?;
        Ok(match value.get("kind").and_then(Value::as_str) {
            Some("scenario_run") => Record::Decision(Box::new(load_scenario_run(folder)?.content)),
            _ => Record::Gates(Box::new(load(folder)?)),
        })
    }

    /// Reads the text of a `record.json`.
    fn parse(path: &Path, text: &str) -> Result<Record, ReportError> {
        let value: Value = content(path, text)?;
        let kind = value.get("run").and_then(|r| r.get("kind")).and_then(Value::as_str);
        Ok(match kind {
            Some("scenario_run") => Record::Decision(Box::new(content(path, text)?)),
            Some("error_rates") => Record::Errors(Box::new(content(path, text)?)),
            Some("mutation_survey") => Record::Survey(Box::new(content(path, text)?)),
            _ => {
                let GateRunFile { run, trials } = content(path, text)?;
                Record::Gates(Box::new(GateRun::from_parts(run, trials)))
            }
        })
    }

    /// The content of `record.json`: one line per sample or trial, so that differences are small.
    fn encode(&self) -> serde_json::Result<String> {
        fn lines<T: Serialize>(
            run: &impl Serialize,
            name: &str,
            items: &[T],
        ) -> serde_json::Result<String> {
            let mut out =
                format!("{{\n\"run\": {},\n\"{name}\": [", serde_json::to_string_pretty(run)?);
            for (i, item) in items.iter().enumerate() {
                let comma = if i == 0 { "" } else { "," };
                write!(out, "{comma}\n{}", serde_json::to_string(item)?)
                    .expect("writing to a string");
            }
            out.push_str("\n]\n}\n");
            Ok(out)
        }
        match self {
            Record::Decision(run) => lines(&run.run, "lines", &run.lines),
            Record::Gates(run) => lines(&run.run, "trials", &run.trials),
            Record::Survey(survey) => lines(&survey.run, "mutations", &survey.mutations),
            Record::Errors(run) => lines(&run.run, "lines", &run.lines),
        }
    }

    fn page(&self) -> String {
        match self {
            Record::Decision(run) => render_decision(run),
            Record::Gates(run) => render_gate_run(run),
            Record::Survey(survey) => render_survey(survey),
            Record::Errors(run) => render_error_rates(run),
        }
    }
}

fn content<T: serde::de::DeserializeOwned>(path: &Path, text: &str) -> Result<T, ReportError> {
    serde_json::from_str(text)
        .map_err(|e| ReportError::Content { path: path.to_owned(), message: e.to_string() })
}

fn write(path: PathBuf, text: &str) -> Result<PathBuf, ReportError> {
    match crate::units::write_whole(&path, text) {
        Ok(()) => Ok(path),
        Err(source) => Err(ReportError::Write { path, source }),
    }
}

/// Writes the page of a run beside its records; returns its path.
///
/// # Errors
/// The records cannot be read or the page cannot be written.
pub fn write_report(run: &Path) -> Result<PathBuf, ReportError> {
    write(run.join(PAGE), &Record::open(run)?.page())
}

/// Writes `record.json` and the page to a report folder and the index page beside that folder;
/// returns the paths of both pages.
///
/// # Errors
/// As [`write_report`].
pub fn render_report(run: &Path, out: &Path) -> Result<Vec<PathBuf>, ReportError> {
    let record = Record::open(run)?;
    std::fs::create_dir_all(out)
        .map_err(|source| ReportError::Write { path: out.to_owned(), source })?;
    let encoded = record
        .encode()
        .map_err(|e| ReportError::Content { path: run.to_owned(), message: e.to_string() })?;
    write(out.join(RECORD), &encoded)?;
    // Rendered from what was written, so that checking renders from the same bytes.
    let record = Record::parse(&out.join(RECORD), &encoded)?;
    let page = write(out.join(PAGE), &record.page())?;
    let parent = match out.parent() {
        Some(parent) if parent.as_os_str().is_empty() => Path::new("."),
        Some(parent) => parent,
        None => out,
    };
    let index = write(parent.join(INDEX), &index_of(parent)?)?;
    Ok(vec![page, index])
}

/// The report folders below a folder, by name.
fn folders(reports: &Path) -> Result<Vec<PathBuf>, ReportError> {
    let entries = std::fs::read_dir(reports)
        .map_err(|source| ReportError::Read { path: reports.to_owned(), source })?;
    let mut folders: Vec<PathBuf> =
        entries.flatten().map(|e| e.path()).filter(|p| p.join(RECORD).is_file()).collect();
    folders.sort();
    Ok(folders)
}

fn index_of(reports: &Path) -> Result<String, ReportError> {
    let mut entries = Vec::new();
    for folder in folders(reports)? {
        let name =
            folder.file_name().map_or_else(String::new, |n| n.to_string_lossy().into_owned());
        entries.push(Entry { name, record: Record::open(&folder)? });
    }
    Ok(render_index(&entries))
}

/// What checking committed reports found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Checked {
    /// Pages looked at, the index included.
    pub pages: usize,
    /// One sentence per page that differs.
    pub problems: Vec<String>,
}

/// Renders every report below `reports` again and compares with what is there.
///
/// # Errors
/// A record cannot be read.
pub fn check_reports(reports: &Path) -> Result<Checked, ReportError> {
    let mut checked = Checked::default();
    let mut compare = |path: PathBuf, expected: &str| {
        checked.pages += 1;
        match std::fs::read(&path) {
            Ok(found) if found == expected.as_bytes() => {}
            Ok(found) => {
                let at = found.iter().zip(expected.as_bytes()).take_while(|(a, b)| a == b).count();
                let line = 1 + found[..at].iter().filter(|b| **b == b'\n').count();
                let shown = path.display();
                checked.problems.push(format!(
                    "{shown}:{line}: differs from the page that its record renders to; `assay report render` makes it anew"
                ));
            }
            Err(e) => checked.problems.push(format!("{}: {e}", path.display())),
        }
    };
    for folder in folders(reports)? {
        compare(folder.join(PAGE), &Record::open(&folder)?.page());
    }
    compare(reports.join(INDEX), &index_of(reports)?);
    Ok(checked)
}
