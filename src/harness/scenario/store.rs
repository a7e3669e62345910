//! The run folder of a scenario: `run.json` and `samples.jsonl`, appended line by line.
//!
//! The folder is `<run-id>.partial` until the run has decided. Every line carries the digest of
//! the line before it.

use super::{Line, SCENARIO_RECORD_VERSION, ScenarioRecord, ScenarioRun};
use crate::harness::records::{RecordError, line};
use serde_json::Value;
use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};

const PARTIAL: &str = ".partial";
const SAMPLES: &str = "samples.jsonl";

/// Appends the lines of one run.
#[derive(Debug)]
pub(super) struct Store {
    folder: PathBuf,
    file: File,
    whole_bytes: u64,
    previous: String,
}

/// A run read from its folder.
#[derive(Debug)]
pub struct StoredRun {
    pub folder: PathBuf,
    pub content: ScenarioRun,
    whole_bytes: u64,
    previous: String,
}

impl Store {
    /// Starts a run in `<out>/<run-id>.partial`.
    pub(super) fn create(out: &Path, run: &ScenarioRecord) -> Result<Store, RecordError> {
        let folder = out.join(format!("{}{PARTIAL}", run.run_id));
        std::fs::create_dir_all(&folder).map_err(writing("make the folder", &folder))?;
        write_run(&folder, run)?;
        let path = folder.join(SAMPLES);
        let file = OpenOptions::new()
            .create_new(true)
            .append(true)
            .open(&path)
            .map_err(writing("create", &path))?;
        Ok(Store { folder, file, whole_bytes: 0, previous: line::origin(&run.run_id) })
    }

    /// Continues an unfinished run; a torn last line is cut off.
    pub(super) fn resume(run: StoredRun) -> Result<(Store, ScenarioRun), RecordError> {
        let StoredRun { folder, content, whole_bytes, previous } = run;
        let path = folder.join(SAMPLES);
        let file = OpenOptions::new().append(true).open(&path).map_err(writing("open", &path))?;
        file.set_len(whole_bytes).map_err(writing("continue", &path))?;
        Ok((Store { folder, file, whole_bytes, previous }, content))
    }

    /// The folder the run is in now.
    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Appends one line; what was written of a failed one is cut off again.
    pub(super) fn append(&mut self, content: &Line) -> Result<(), RecordError> {
        let path = self.folder.join(SAMPLES);
        let text = line::encode(content, &self.previous)
            .map_err(|e| RecordError::Run { path: path.clone(), message: e.to_string() })?;
        if let Err(error) = self.file.write_all(text.as_bytes()) {
            // Best effort: a reader drops a torn last line anyway.
            let _ = self.file.set_len(self.whole_bytes);
            return Err(writing("append to", &path)(error));
        }
        self.whole_bytes += text.len() as u64;
        self.previous = line::link(&text);
        Ok(())
    }

    /// Replaces `run.json` in one step.
    pub(super) fn update(&self, run: &ScenarioRecord) -> Result<(), RecordError> {
        write_run(&self.folder, run)
    }

    /// Completes the run; returns the final folder.
    pub(super) fn finish(self, run: &mut ScenarioRecord) -> Result<PathBuf, RecordError> {
        let path = self.folder.join(SAMPLES);
        self.file.sync_all().map_err(writing("flush", &path))?;
        run.finished = Some(crate::units::utc_now());
        run.last_line = Some(self.previous);
        write_run(&self.folder, run)?;
        let done = self.folder.with_file_name(&run.run_id);
        std::fs::rename(&self.folder, &done).map_err(writing("rename the folder to", &done))?;
        Ok(done)
    }
}

/// Reads the run in a folder; a torn last line (the writer was killed) is dropped.
///
/// # Errors
/// A file is missing, was changed, or comes from a newer version.
pub fn load_scenario_run(folder: &Path) -> Result<StoredRun, RecordError> {
    let path = folder.join("run.json");
    let text = std::fs::read_to_string(&path).map_err(reading(&path))?;
    let run = scenario_record(&path, &text)?;
    let path = folder.join(SAMPLES);
    let bytes = std::fs::read(&path).map_err(reading(&path))?;
    let whole = bytes.iter().rposition(|b| *b == b'\n').map_or(0, |at| at + 1);
    let wrong =
        |line: usize, message: String| RecordError::Line { path: path.clone(), line, message };
    let text = std::str::from_utf8(&bytes[..whole])
        .map_err(|_| wrong(1, "the file is not UTF-8".to_owned()))?;
    let mut previous = line::origin(&run.run_id);
    let mut lines = Vec::new();
    for (index, text) in text.lines().enumerate() {
        let mut value: Value = line::decode(text, &previous).map_err(|m| wrong(index + 1, m))?;
        if let Value::Object(fields) = &mut value {
            fields.shift_remove(line::PREVIOUS);
        }
        let content = serde_json::from_value(value)
            .map_err(|e| wrong(index + 1, format!("the line is no such record: {e}")))?;
        lines.push(content);
        previous = line::link(text);
    }
    if run.last_line.as_ref().is_some_and(|expected| *expected != previous) {
        let message = "the last line is not the one the run ended with".to_owned();
        return Err(RecordError::Run { path, message });
    }
    Ok(StoredRun {
        folder: folder.to_owned(),
        content: ScenarioRun { run, lines },
        whole_bytes: whole as u64,
        previous,
    })
}

/// A record from its text, the version first: a newer file may well not fit today's types.
fn scenario_record(path: &Path, text: &str) -> Result<ScenarioRecord, RecordError> {
    let wrong =
        |e: serde_json::Error| RecordError::Run { path: path.to_owned(), message: e.to_string() };
    let value: Value = serde_json::from_str(text).map_err(wrong)?;
    let version = value.get("schema_version").and_then(Value::as_u64).unwrap_or(0);
    let found = u32::try_from(version).unwrap_or(u32::MAX);
    if found > SCENARIO_RECORD_VERSION {
        let known = SCENARIO_RECORD_VERSION;
        return Err(RecordError::Newer { path: path.to_owned(), found, known });
    }
    serde_json::from_value(value).map_err(wrong)
}

fn write_run(folder: &Path, run: &ScenarioRecord) -> Result<(), RecordError> {
    let path = folder.join("run.json");
    let temporary = folder.join("run.json.new");
    let text = serde_json::to_string_pretty(run)
        .map_err(|e| RecordError::Run { path: path.clone(), message: e.to_string() })?;
    std::fs::write(&temporary, text + "\n").map_err(writing("write", &temporary))?;
    std::fs::rename(&temporary, &path).map_err(writing("replace", &path))
}

fn writing(action: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> RecordError {
    let path = path.to_owned();
    move |source| RecordError::Write { action, path, source }
}

fn reading(path: &Path) -> impl FnOnce(std::io::Error) -> RecordError {
    let path = path.to_owned();
    move |source| RecordError::Read { path, source }
}
