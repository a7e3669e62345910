//! From a selection of gates to a finished run: what `assay gates run` and `tests/gates.rs` share.

use super::resume::Previous;
use super::session::{RunOutcome, Session, SessionOptions};
use super::{RunError, front, previous};
use crate::harness::plan::{Partition, Pattern, Plan, PlanError, PlanOptions, Trial};
use crate::harness::plan::{devices, plan, read_gates};
use crate::harness::records::{
    BuildRecord, DeviceRecord, MachineRecord, RunKind, RunOptions, RunRecord, RunSummary,
    RunWriter, SCHEMA_VERSION, load, run_id, summarise,
};
use libtest_mimic::Arguments;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread::JoinHandle;

/// What to run and how.
#[derive(Clone, Debug)]
pub struct Launch {
    /// The project folder; `None`: only gate files named by path.
    pub root: Option<PathBuf>,
    /// Names, globs, `tag:` and paths, as typed.
    pub selection: Vec<String>,
    pub long: bool,
    pub set: BTreeMap<String, String>,
    pub partition: Option<Partition>,
    pub jobs: usize,
    pub fail_fast: bool,
    pub shuffle: Option<u64>,
    /// A run to continue: its folder, or its id below `out`.
    pub resume: Option<String>,
    /// Where run folders are made.
    pub out: PathBuf,
    /// The `assay` binary that workers are started from.
    pub program: PathBuf,
    /// The command line, for the record.
    pub command: Vec<String>,
    pub interrupted: Arc<AtomicBool>,
}

/// Why a launch came to nothing.
#[derive(Debug, thiserror::Error)]
pub enum LaunchError {
    #[error(transparent)]
    Plan(#[from] PlanError),
    #[error(transparent)]
    Run(#[from] RunError),
}

/// A planned run.
#[derive(Debug)]
pub struct Launched {
    launch: Launch,
    root: PathBuf,
    pub plan: Arc<Plan>,
    pub devices: Vec<DeviceRecord>,
}

impl Launch {
    /// Reads and plans the gates.
    ///
    /// # Errors
    /// A faulty file, or nothing selected.
    pub fn plan(self) -> Result<Launched, PlanError> {
        let patterns: Vec<Pattern> = self.selection.iter().map(|w| Pattern::parse(w)).collect();
        let root = self.root.clone().unwrap_or_default();
        let devices = devices();
        let gates = read_gates(self.root.as_deref(), &patterns, &self.set)?;
        let options = PlanOptions {
            root: std::path::absolute(&root).unwrap_or_else(|_| root.clone()),
            long: self.long,
            devices: devices.clone(),
            patterns,
            partition: self.partition,
        };
        let plan = Arc::new(plan(gates, &options)?);
        Ok(Launched { launch: self, root: options.root, plan, devices })
    }
}

impl Launched {
    /// Runs the plan, shown by libtest-mimic where `arguments` are given, in silence otherwise.
    /// `None` where the trials were only listed.
    ///
    /// # Errors
    /// The run to resume does not fit, or the records cannot be written.
    pub fn run(
        self,
        arguments: Option<&Arguments>,
    ) -> Result<Option<(RunSummary, RunOutcome)>, RunError> {
        let mut running: Option<Vec<JoinHandle<()>>> = None;
        let mut session: Option<Arc<Session>> = None;
        let mut start = |selected: &dyn Fn(&Trial) -> bool| -> Result<Arc<Session>, RunError> {
            let (started, threads) = self.start(selected)?;
            running = Some(threads);
            session = Some(started.clone());
            Ok(started)
        };
        let mut shown = Ok(());
        match arguments {
            Some(arguments) => shown = front(arguments, &self.plan, &mut start)?,
            None => {
                let session = start(&|_| true)?;
                for at in 0..self.plan.trials.len() {
                    let _ = session.wait(at);
                }
            }
        }
        let (Some(session), Some(threads)) = (session, running) else { return Ok(None) };
        let outcome = RunOutcome { unprinted: shown.err(), ..session.finish(threads)? };
        let summary = summarise(&load(&outcome.folder)?);
        Ok(Some((summary, outcome)))
    }

    fn start(
        &self,
        selected: &dyn Fn(&Trial) -> bool,
    ) -> Result<(Arc<Session>, Vec<JoinHandle<()>>), RunError> {
        let launch = &self.launch;
        let planned = self.plan.trials.iter().filter(|t| selected(t)).map(|t| t.name.clone());
        let mut record = self.record(planned.collect());
        let (writer, done, retried) = match &launch.resume {
            None => (RunWriter::create(&launch.out, record)?, BTreeMap::new(), BTreeMap::new()),
            Some(name) => {
                let digests = self.plan.gates.iter().map(|g| {
                    let file = &g.file;
                    (file.name.clone(), file.digest.to_string())
                });
                let Previous { mut run, done, retried } = previous(
                    name,
                    &launch.out,
                    &record.build,
                    &record.machine,
                    &record.options,
                    &record.pending,
                    &digests.collect(),
                )?;
                record.run_id = run.run.run_id.clone();
                record.started = run.run.started.clone();
                record.elapsed_ms = run.run.elapsed_ms;
                record.finished = run.run.finished.clone();
                record.last_line = run.run.last_line.clone();
                run.run = record;
                (RunWriter::resume(run)?, done, retried)
            }
        };
        let options = SessionOptions {
            program: launch.program.clone(),
            root: self.root.clone(),
            scratch: std::env::temp_dir().join(format!("assay-{}", writer.run().run_id)),
            long: launch.long,
            set: launch.set.clone(),
            jobs: launch.jobs,
            fail_fast: launch.fail_fast,
            shuffle: launch.shuffle,
            interrupted: launch.interrupted.clone(),
        };
        let session =
            Arc::new(Session::new(self.plan.clone(), options, writer, done, &retried, selected)?);
        let threads = session.start(&retried);
        Ok((session, threads))
    }

    fn record(&self, planned: Vec<String>) -> RunRecord {
        let launch = &self.launch;
        let started = crate::units::utc_now();
        RunRecord {
            schema_version: SCHEMA_VERSION,
            kind: RunKind::GateRun,
            run_id: run_id(&started),
            command: launch.command.clone(),
            started,
            finished: None,
            elapsed_ms: 0,
            build: BuildRecord::current(),
            machine: MachineRecord::current(),
            devices: self.devices.clone(),
            options: RunOptions {
                selection: launch.selection.clone(),
                long: launch.long,
                set: launch.set.clone(),
                partition: launch.partition.map(|p| p.to_string()),
                shuffle: launch.shuffle,
            },
            gates: self.plan.gate_records(&self.root),
            not_applicable: self.plan.not_applicable.clone(),
            planned_trials: planned.len() as u64,
            pending: planned,
            unestablished: self.plan.unestablished(&self.devices),
            last_line: None,
            merged: Vec::new(),
            missing_parts: Vec::new(),
        }
    }
}
