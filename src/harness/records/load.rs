//! Reading a run folder back.

use super::{RecordError, RunRecord, SCHEMA_VERSION, TrialRecord, line};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// A run as it was recorded.
#[derive(Clone, Debug, PartialEq)]
pub struct GateRun {
    pub folder: PathBuf,
    pub run: RunRecord,
    /// The last record of every trial, in the order of their first lines.
    pub trials: Vec<TrialRecord>,
    /// Bytes of a torn last line that were left out; 0 for a whole file.
    pub torn_bytes: u64,
    /// Bytes of whole lines.
    pub(super) whole_bytes: u64,
    /// Digest of the last whole line.
    pub(super) last_line: String,
}

impl GateRun {
    /// A run from parts that were not read from a run folder (a committed report).
    pub fn from_parts(run: RunRecord, trials: Vec<TrialRecord>) -> GateRun {
        let last_line = run.last_line.clone().unwrap_or_default();
        GateRun { folder: PathBuf::new(), run, trials, torn_bytes: 0, whole_bytes: 0, last_line }
    }

    /// Planned trials without a record, by name; their number alone where the run was made before
    /// names were recorded.
    pub fn missing(&self) -> (u64, Vec<String>) {
        let recorded: BTreeSet<&str> = self.trials.iter().map(|t| t.name.as_str()).collect();
        let lost = |name: &&String| !recorded.contains(name.as_str());
        let names: Vec<String> = self.run.pending.iter().filter(lost).cloned().collect();
        let counted = self.run.planned_trials.saturating_sub(self.trials.len() as u64);
        (counted.max(names.len() as u64), names)
    }

    /// Whether the run was finished.
    pub fn is_complete(&self) -> bool {
        self.run.finished.is_some()
    }
}

/// Reads the run in a folder; a torn last line (the writer was killed) is dropped.
///
/// # Errors
/// A file is missing, was changed, or comes from a newer version.
pub fn load(folder: &Path) -> Result<GateRun, RecordError> {
    let run = run_record(&folder.join("run.json"))?;
    let path = folder.join("trials.jsonl");
    let bytes = std::fs::read(&path).map_err(RecordError::read(&path))?;
    let whole = bytes.iter().rposition(|b| *b == b'\n').map_or(0, |at| at + 1);
    let at_line =
        |line: usize, message: String| RecordError::Line { path: path.clone(), line, message };
    let text = std::str::from_utf8(&bytes[..whole])
        .map_err(|_| at_line(1, "the file is not UTF-8".to_owned()))?;

    let mut trials: Vec<TrialRecord> = Vec::new();
    let mut places: BTreeMap<String, usize> = BTreeMap::new();
    let mut last_line = line::origin(&run.run_id);
    for (index, text) in text.lines().enumerate() {
        let record: TrialRecord =
            line::decode(text, &last_line).map_err(|m| at_line(index + 1, m))?;
        last_line = line::link(text);
        match places.get(&record.name) {
            Some(&at) => trials[at] = record,
            None => {
                places.insert(record.name.clone(), trials.len());
                trials.push(record);
            }
        }
    }
    if run.last_line.as_ref().is_some_and(|expected| *expected != last_line) {
        let message = "the last line is not the one the run ended with".to_owned();
        return Err(RecordError::Run { path, message });
    }
    let torn_bytes = (bytes.len() - whole) as u64;
    let folder = folder.to_owned();
    Ok(GateRun { folder, run, trials, torn_bytes, whole_bytes: whole as u64, last_line })
}

fn run_record(path: &Path) -> Result<RunRecord, RecordError> {
    let text = std::fs::read_to_string(path).map_err(RecordError::read(path))?;
    let wrong =
        |e: serde_json::Error| RecordError::Run { path: path.to_owned(), message: e.to_string() };
    let value: serde_json::Value = serde_json::from_str(&text).map_err(wrong)?;
    // The version first: a newer file may well not fit today's types.
    let version = value.get("schema_version").and_then(serde_json::Value::as_u64).unwrap_or(0);
    let found = u32::try_from(version).unwrap_or(u32::MAX);
    if found > SCHEMA_VERSION {
        return Err(RecordError::Newer { path: path.to_owned(), found, known: SCHEMA_VERSION });
    }
    serde_json::from_value(value).map_err(wrong)
}
