//! A run in progress: a thread per worker, results recorded as they come.

use super::RunError;
use super::client::{Answer, Scratch, Worker, WorkerCommand};
use super::protocol::Request;
use super::schedule::{Queue, Waiting};
use crate::harness::kind::{Outcome, Verdict};
use crate::harness::plan::{Plan, Trial};
use crate::harness::records::{RecordError, RunWriter, TrialRecord};
use crate::harness::spec::GateFile;
use crate::units::utc_now;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How trials are run.
#[derive(Clone, Debug)]
pub struct SessionOptions {
    /// The `assay` binary that workers are started from.
    pub program: PathBuf,
    pub root: PathBuf,
    /// Where trials get their scratch folders.
    pub scratch: PathBuf,
    pub long: bool,
    pub set: BTreeMap<String, String>,
    /// Worker processes at a time.
    pub jobs: usize,
    /// Stop handing out trials after the first failure.
    pub fail_fast: bool,
    pub shuffle: Option<u64>,
    /// Set from outside to stop the run (Ctrl-C).
    pub interrupted: Arc<AtomicBool>,
}

/// How a run ended.
#[derive(Debug)]
pub struct RunOutcome {
    /// The folder of the records.
    pub folder: PathBuf,
    pub interrupted: bool,
    /// Trials planned and not run, because of `--fail-fast` or an interruption.
    pub not_run: usize,
    /// Why the list of trials was not printed to its end (a full disk); the run did not suffer.
    pub unprinted: Option<std::io::Error>,
}

/// What became of a trial.
#[derive(Clone, Debug)]
#[expect(clippy::large_enum_variant, reason = "nearly every slot ends as a record")]
enum Slot {
    Waiting,
    Done(TrialRecord),
    /// Not run, for this reason.
    Dropped(&'static str),
}

struct State {
    slots: Vec<Slot>,
    queue: Queue,
    writer: RunWriter,
    failure: Option<RecordError>,
}

/// A run in progress.
pub struct Session {
    plan: Arc<Plan>,
    options: SessionOptions,
    state: Mutex<State>,
    changed: Condvar,
    stop: AtomicBool,
    started: Instant,
}

/// The `--set` values that took part in reading a gate.
fn given_to(gate: &GateFile, set: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    let taken = set.iter().filter(|(key, _)| gate.overrides.contains_key(*key));
    taken.map(|(key, value)| (key.clone(), value.clone())).collect()
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Session({} trials)", self.plan.trials.len())
    }
}

/// Why a trial has no result.
const STOPPED: &str = "not run: the run was interrupted";
const FAIL_FAST: &str = "not run: an earlier trial failed (--fail-fast)";
const RECORDS: &str = "not run: the records could not be written";
const FILTERED: &str = "not selected";

impl Session {
    /// Prepares a run. Trials that were done before (`--resume`) are taken over, skipped ones are
    /// recorded at once; `selected` says which of the others run.
    ///
    /// # Errors
    /// The records cannot be written.
    pub fn new(
        plan: Arc<Plan>,
        options: SessionOptions,
        mut writer: RunWriter,
        mut done: BTreeMap<String, TrialRecord>,
        retried: &BTreeMap<String, u32>,
        selected: impl Fn(&Trial) -> bool,
    ) -> Result<Session, RunError> {
        let mut slots = Vec::new();
        let mut waiting = Vec::new();
        for (at, trial) in plan.trials.iter().enumerate() {
            let gate = plan.gate_of(trial);
            slots.push(if let Some(record) = done.remove(&trial.name) {
                Slot::Done(record)
            } else if !selected(trial) {
                Slot::Dropped(FILTERED)
            } else if let Some(reason) = &trial.skip {
                let outcome = Outcome::new(Verdict::Skip, reason);
                let spec_digest = gate.digest.to_string();
                let mut record =
                    TrialRecord::new(&trial.name, &gate.name, &trial.cell, outcome, &spec_digest);
                record.attempt = retried.get(&trial.name).map_or(1, |n| n + 1);
                writer.append(&record)?;
                Slot::Done(record)
            } else {
                waiting.push(Waiting { trial: at, group: trial.group.clone() });
                Slot::Waiting
            });
        }
        let mut queue = Queue::new(waiting);
        if let Some(seed) = options.shuffle {
            queue.shuffle(seed);
        }
        std::fs::create_dir_all(&options.scratch)
            .map_err(|source| RunError::Scratch { path: options.scratch.clone(), source })?;
        Ok(Session {
            plan,
            options,
            state: Mutex::new(State { slots, queue, writer, failure: None }),
            changed: Condvar::new(),
            stop: AtomicBool::new(false),
            started: Instant::now(),
        })
    }

    /// Starts the workers. Their threads end when nothing is left to run.
    pub fn start(self: &Arc<Session>, retried: &BTreeMap<String, u32>) -> Vec<JoinHandle<()>> {
        let waiting = self.lock().slots.iter().filter(|s| matches!(s, Slot::Waiting)).count();
        let retried = Arc::new(retried.clone());
        (0..self.options.jobs.min(waiting))
            .map(|number| {
                let (session, retried) = (self.clone(), retried.clone());
                std::thread::spawn(move || session.work(number, &retried))
            })
            .collect()
    }

    /// The result of a trial, waited for; `Err` says why it has none.
    ///
    /// # Errors
    /// The trial was not run: interrupted, `--fail-fast`, or records that cannot be written.
    pub fn wait(&self, trial: usize) -> Result<TrialRecord, &'static str> {
        let mut state = self.lock();
        loop {
            match &state.slots[trial] {
                Slot::Done(record) => return Ok(record.clone()),
                Slot::Dropped(reason) => return Err(reason),
                Slot::Waiting => {
                    state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
                }
            }
        }
    }

    /// How many trials have a result, and of how many.
    pub fn progress(&self) -> (usize, usize) {
        let state = self.lock();
        let done = state.slots.iter().filter(|s| matches!(s, Slot::Done(_))).count();
        (done, state.slots.len())
    }

    /// Ends the run: complete, or partial if something was not run.
    ///
    /// # Errors
    /// The records could not be written.
    pub fn finish(
        self: Arc<Session>,
        threads: Vec<JoinHandle<()>>,
    ) -> Result<RunOutcome, RunError> {
        for thread in threads {
            // A panic there has dropped its worker; the slots say what is missing.
            let _ = thread.join();
        }
        let session = Arc::into_inner(self).ok_or_else(|| RunError::Resume {
            run: PathBuf::new(),
            reason: "the run is still going on".to_owned(),
        })?;
        let _ = std::fs::remove_dir_all(&session.options.scratch);
        let elapsed_ms = session.started.elapsed().as_millis() as u64;
        let interrupted = session.options.interrupted.load(Ordering::SeqCst);
        let state = session.state.into_inner().unwrap_or_else(PoisonError::into_inner);
        if let Some(failure) = state.failure {
            return Err(failure.into());
        }
        let not_run = state.slots.iter().filter(|s| !matches!(s, Slot::Done(_))).count();
        let folder = if not_run == 0 {
            state.writer.finish(elapsed_ms, Vec::new())?
        } else {
            state.writer.interrupt(elapsed_ms)?
        };
        Ok(RunOutcome { folder, interrupted, not_run, unprinted: None })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn stopping(&self) -> bool {
        self.stop.load(Ordering::SeqCst) || self.options.interrupted.load(Ordering::SeqCst)
    }

    /// One worker's thread: takes trials until none is left.
    fn work(&self, number: usize, retried: &BTreeMap<String, u32>) {
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        let command = WorkerCommand {
            program: self.options.program.clone(),
            threads: (threads / self.options.jobs).max(1),
        };
        let mut worker: Option<Worker> = None;
        while !self.stopping() {
            let Some(next) = self.lock().queue.take(number) else { break };
            let started = Instant::now();
            let stamp = utc_now();
            let answer = self.execute(next.trial, &command, &mut worker);
            let Some((outcome, build_digest)) = answer else { break };
            let trial = &self.plan.trials[next.trial];
            let gate = self.plan.gate_of(trial);
            let spec_digest = gate.digest.to_string();
            let mut record =
                TrialRecord::new(&trial.name, &gate.name, &trial.cell, outcome, &spec_digest);
            record.started = stamp;
            record.duration_ms = started.elapsed().as_millis() as u64;
            record.attempt = retried.get(&trial.name).map_or(1, |n| n + 1);
            record.build_digest = build_digest.unwrap_or(record.build_digest);
            self.record(next.trial, record);
        }
        self.lock().queue.leave(number);
        self.drop_waiting();
    }

    /// Runs a trial; `None`: the run was stopped meanwhile.
    fn execute(
        &self,
        at: usize,
        command: &WorkerCommand,
        worker: &mut Option<Worker>,
    ) -> Option<(Outcome, Option<String>)> {
        let trial = &self.plan.trials[at];
        let gate = self.plan.gate_of(trial);
        let scratch = match Scratch::new(&self.options.scratch, at) {
            Ok(scratch) => scratch,
            Err(e) => return Some((Outcome::error(format!("no scratch folder: {e}")), None)),
        };
        let mut ready = match worker.take() {
            Some(ready) => ready,
            None => match Worker::start(command) {
                Ok(started) => started,
                Err(message) => return Some((Outcome::error(message), None)),
            },
        };
        let request = Request {
            path: std::path::absolute(&gate.path).unwrap_or_else(|_| gate.path.clone()),
            set: given_to(gate, &self.options.set),
            spec_digest: gate.digest.to_string(),
            cell: trial.cell.clone(),
            long: self.options.long,
            root: self.options.root.clone(),
            scratch: scratch.path().to_owned(),
            threads: command.threads,
        };
        let factor = if self.options.long { 10 } else { 1 };
        let timeout = Duration::from_millis(gate.timeout_ms.saturating_mul(factor));
        let build_digest = ready.build_digest.clone();
        match ready.run(&request, timeout, &|| self.stopping()) {
            Answer::Outcome(outcome, keep) => {
                if keep {
                    *worker = Some(ready);
                }
                Some((outcome, Some(build_digest)))
            }
            Answer::Stopped => None,
        }
    }

    fn record(&self, at: usize, record: TrialRecord) {
        let bad = matches!(record.verdict, Verdict::Fail | Verdict::Error);
        let mut state = self.lock();
        match state.writer.append(&record) {
            Ok(()) => state.slots[at] = Slot::Done(record),
            Err(failure) => {
                state.failure = Some(failure);
                state.slots[at] = Slot::Dropped(RECORDS);
                self.stop.store(true, Ordering::SeqCst);
            }
        }
        drop(state);
        if bad && self.options.fail_fast {
            self.stop.store(true, Ordering::SeqCst);
        }
        self.changed.notify_all();
    }

    /// Once the run is stopping, whoever waits for a result is told why there is none.
    fn drop_waiting(&self) {
        if !self.stopping() {
            return;
        }
        let mut state = self.lock();
        let reason = if state.failure.is_some() {
            RECORDS
        } else if self.options.interrupted.load(Ordering::SeqCst) {
            STOPPED
        } else {
            FAIL_FAST
        };
        for slot in state.slots.iter_mut().filter(|s| matches!(s, Slot::Waiting)) {
            *slot = Slot::Dropped(reason);
        }
        drop(state);
        self.changed.notify_all();
    }
}
