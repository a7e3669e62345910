//! Writing a run folder: `<run-id>.partial` while it runs, `<run-id>` when it is complete.

use super::{GateRun, RecordError, RunRecord, TrialRecord, line};
use std::fs::{File, OpenOptions};
use std::io::{Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};

const PARTIAL: &str = ".partial";

/// Appends the trials of one run.
#[derive(Debug)]
pub struct RunWriter {
    folder: PathBuf,
    run: RunRecord,
    trials: File,
    /// Bytes of whole lines written.
    whole_bytes: u64,
    previous: String,
}

impl RunWriter {
    /// Starts a run in `<out>/<run-id>.partial`.
    ///
    /// # Errors
    /// The folder cannot be made (read-only, full).
    pub fn create(out: &Path, run: RunRecord) -> Result<RunWriter, RecordError> {
        let folder = out.join(format!("{}{PARTIAL}", run.run_id));
        std::fs::create_dir_all(&folder).map_err(RecordError::write("make the folder", &folder))?;
        write_run(&folder, &run)?;
        let path = folder.join("trials.jsonl");
        let trials = OpenOptions::new()
            .create_new(true)
            .write(true)
            .open(&path)
            .map_err(RecordError::write("create", &path))?;
        let previous = line::origin(&run.run_id);
        Ok(RunWriter { folder, run, trials, whole_bytes: 0, previous })
    }

    /// Continues a run that was read with [`load`](fn@super::load): a torn last line is cut off, a
    /// finished folder becomes partial again.
    ///
    /// # Errors
    /// The folder cannot be written.
    pub fn resume(run: GateRun) -> Result<RunWriter, RecordError> {
        let GateRun { mut folder, mut run, whole_bytes, last_line, .. } = run;
        if run.finished.take().is_some() {
            run.last_line = None;
            let partial = folder.with_file_name(format!("{}{PARTIAL}", run.run_id));
            std::fs::rename(&folder, &partial)
                .map_err(RecordError::write("rename the folder to", &partial))?;
            folder = partial;
        }
        // What is planned now may be more than what was planned then.
        write_run(&folder, &run)?;
        let path = folder.join("trials.jsonl");
        let mut trials = OpenOptions::new()
            .write(true)
            .open(&path)
            .map_err(RecordError::write("open", &path))?;
        trials
            .set_len(whole_bytes)
            .and_then(|()| trials.seek(SeekFrom::End(0)))
            .map_err(RecordError::write("continue", &path))?;
        Ok(RunWriter { folder, run, trials, whole_bytes, previous: last_line })
    }

    /// The folder the run is in now.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The record of the run.
    pub fn run(&self) -> &RunRecord {
        &self.run
    }

    /// Appends one trial and hands it to the operating system.
    ///
    /// # Errors
    /// The line could not be written whole; what was written of it is cut off again, so the
    /// earlier lines stay readable.
    pub fn append(&mut self, record: &TrialRecord) -> Result<(), RecordError> {
        let path = self.folder.join("trials.jsonl");
        let text = line::encode(record, &self.previous)
            .map_err(|e| RecordError::Run { path: path.clone(), message: e.to_string() })?;
        if let Err(error) = self.trials.write_all(text.as_bytes()) {
            // Best effort: a reader drops a torn last line anyway.
            let _ = self.trials.set_len(self.whole_bytes);
            return Err(RecordError::write("append to", &path)(error));
        }
        self.whole_bytes += text.len() as u64;
        self.previous = line::link(&text);
        Ok(())
    }

    /// Completes the run: `run.json` gets its end and the names of the trials that it lacks (those
    /// that merged runs lost), the folder its final name, which is returned.
    ///
    /// # Errors
    /// The folder cannot be written.
    pub fn finish(mut self, elapsed_ms: u64, lacking: Vec<String>) -> Result<PathBuf, RecordError> {
        self.run.pending = lacking;
        let path = self.folder.join("trials.jsonl");
        self.trials.sync_all().map_err(RecordError::write("flush", &path))?;
        self.run.finished = Some(crate::units::utc_now());
        self.run.elapsed_ms = self.run.elapsed_ms.saturating_add(elapsed_ms);
        self.run.last_line = Some(self.previous);
        write_run(&self.folder, &self.run)?;
        let done = self.folder.with_file_name(&self.run.run_id);
        std::fs::rename(&self.folder, &done)
            .map_err(RecordError::write("rename the folder to", &done))?;
        Ok(done)
    }

    /// Stops an incomplete run; the folder stays `.partial` and can be resumed.
    ///
    /// # Errors
    /// The folder cannot be written.
    pub fn interrupt(mut self, elapsed_ms: u64) -> Result<PathBuf, RecordError> {
        self.run.elapsed_ms = self.run.elapsed_ms.saturating_add(elapsed_ms);
        write_run(&self.folder, &self.run)?;
        Ok(self.folder)
    }
}

/// Replaces `run.json` in one step, so that a reader never sees half of it.
fn write_run(folder: &Path, run: &RunRecord) -> Result<(), RecordError> {
    let path = folder.join("run.json");
    let temporary = folder.join("run.json.new");
    let text = serde_json::to_string_pretty(run)
        .map_err(|e| RecordError::Run { path: path.clone(), message: e.to_string() })?;
    std::fs::write(&temporary, text + "\n").map_err(RecordError::write("write", &temporary))?;
    std::fs::rename(&temporary, &path).map_err(RecordError::write("replace", &path))
}
