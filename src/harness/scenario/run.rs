//! Runs a scenario: launches processes, measures quads, records every line, decides at each look.

use super::bandwidth::Probe;
use super::identify::ids;
use super::peers::Process;
use super::process::{ArmProcess, WorkerCommand, WorkerError};
use super::schedule::{kept, next_launch};
use super::start::{record, resumable};
use super::store::{Store, StoredRun};
use super::worker::{Load, ModelSource};
use super::{
    ArmBuild, BesideRecord, DeviceReading, ErrorSummary, GateEvidence, Launch, LaunchEnd,
    LaunchedArm, Line, Plan, QuadLine, ScenarioFile, ScenarioRun, Turn, decide, is_dropped,
};
use crate::backend::cuda::{DeviceGauge, DeviceState};
use crate::backend::{DeviceKind, Policy};
use crate::harness::records::{MachineRecord, RecordError};
use crate::harness::stats::loads_in_reverse;
use crate::units::throttle_events;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// What a run needs beside its file.
#[derive(Clone, Debug)]
pub struct RunRequest<'a> {
    pub file: &'a ScenarioFile,
    pub device: DeviceKind,
    pub model: ModelSource,
    /// The file's path as it is recorded.
    pub recorded_path: String,
    /// `--set` values that took part.
    pub set: BTreeMap<String, String>,
    /// The gates the arms rest on, all green.
    pub gates: Vec<GateEvidence>,
    /// The command line, as typed.
    pub command: Vec<String>,
    /// The folder that holds run folders.
    pub out: &'a Path,
    pub worker: WorkerCommand,
    /// Own binaries of arms that are other builds.
    pub builds: BTreeMap<String, ArmBuild>,
    /// Arms of earlier records, shown beside.
    pub beside: BTreeMap<String, BesideRecord>,
    /// Digest of the model's folder, where live peers are compared with it.
    pub model_digest: Option<String>,
    /// Ids of the model's vocabulary; live peers are given prompts below it.
    pub vocab: usize,
    /// How often the procedure errs on this machine, where that is established.
    pub error_rates: Option<ErrorSummary>,
    /// In place of the file's plan and of an id made from the time: a part of a larger measurement.
    pub part: Option<Part>,
}

/// A run that is one part of establishing error rates.
#[derive(Clone, Debug, PartialEq)]
pub struct Part {
    pub run_id: String,
    pub plan: Plan,
    /// Slows every candidate down.
    pub slowdown_ratio: Option<f64>,
}

/// Told how far a run is, and asked whether to stop.
pub trait Watch {
    /// `kept` of `wanted` quads of the next look are recorded, over all series.
    fn progress(&mut self, kept: usize, wanted: usize, doing: &str);

    /// Whether the user asked to stop.
    fn stopped(&self) -> bool;
}

/// How a run ended.
#[derive(Debug)]
pub enum RunEnd {
    /// It decided; the records are complete.
    Decided { folder: PathBuf, run: Box<ScenarioRun> },
    /// It was stopped; `--resume` continues it.
    Stopped { folder: PathBuf },
}

/// Why a run could not go on.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    #[error(transparent)]
    Record(#[from] RecordError),
    #[error(transparent)]
    Worker(#[from] WorkerError),
    #[error("cannot resume {}: {reason}", folder.display())]
    Resume { folder: PathBuf, reason: String },
    #[error(
        "the A/A series lacks {lost} of {wanted} quads, too many were dropped: nothing can be said of \
         rates; begin again when the machine is left alone"
    )]
    ShortSeries { lost: usize, wanted: usize },
    #[error("the memory's rate cannot be read: {0}")]
    Memory(String),
}

/// Runs a scenario, or continues `earlier`.
///
/// # Errors
/// Records cannot be written, a worker failed, or the earlier run does not fit.
pub fn run_scenario(
    request: &RunRequest<'_>,
    earlier: Option<StoredRun>,
    watch: &mut dyn Watch,
) -> Result<RunEnd, RunError> {
    let fresh = record(request);
    let (store, content) = match earlier {
        None => {
            (Store::create(request.out, &fresh)?, ScenarioRun { run: fresh, lines: Vec::new() })
        }
        Some(stored) => {
            resumable(&stored, &fresh)?;
            let (store, mut content) = Store::resume(stored)?;
            content.run.parts += 1;
            store.update(&content.run)?;
            (store, content)
        }
    };
    let threads = MachineRecord::current().usable_processors as usize;
    let probe = Probe::of(request.device, threads).map_err(RunError::Memory)?;
    let gauge = (request.device == DeviceKind::Cuda).then(|| DeviceGauge::of(0));
    let mut runner = Runner { request, store, content, probe, gauge };
    runner.measure_quality(watch)?;
    loop {
        let run = &runner.content.run;
        let decided =
            !run.refusals.is_empty() || decide(&run.plan, &runner.content.lines, false).is_some();
        if decided {
            break;
        }
        if watch.stopped() {
            return Ok(RunEnd::Stopped { folder: runner.store.folder().to_owned() });
        }
        let went_on = runner.launch(watch);
        if watch.stopped() {
            // A stop reaches the workers too; what they were doing is not recorded.
            return Ok(RunEnd::Stopped { folder: runner.store.folder().to_owned() });
        }
        went_on?;
    }
    let Runner { store, mut content, .. } = runner;
    let folder = store.finish(&mut content.run)?;
    Ok(RunEnd::Decided { folder, run: Box::new(content) })
}

pub(super) struct Runner<'a> {
    pub(super) request: &'a RunRequest<'a>,
    pub(super) store: Store,
    pub(super) content: ScenarioRun,
    pub(super) probe: Probe,
    /// Reads the state of the GPU that arms run on; `None` on the CPU.
    gauge: Option<DeviceGauge>,
}

impl Runner<'_> {
    pub(super) fn append(&mut self, line: Line) -> Result<(), RunError> {
        self.store.append(&line)?;
        self.content.lines.push(line);
        Ok(())
    }

    /// One launch: fresh processes for every arm, the quads of this launch, the end.
    fn launch(&mut self, watch: &mut dyn Watch) -> Result<(), RunError> {
        let plan = self.content.run.plan.clone();
        let Some(next) = next_launch(&plan, &self.content.lines) else { return Ok(()) };
        self.tell(watch, &format!("launch {}: loading", next.launch + 1));
        let throttled_before = throttle_events();
        let begun = Instant::now();
        let mut processes = BTreeMap::new();
        let mut loaded = BTreeMap::new();
        // What is loaded first may find better memory: arms load side by side, and none is to be the first
        // in every launch. Regions that are timed at loading need the machine for themselves.
        let mut order: Vec<&str> = plan.arms().collect();
        if loads_in_reverse(next.launch) {
            order.reverse();
        }
        let alone = self.request.file.spec.measure.regions;
        let mut loading = Vec::new();
        for arm in order {
            let build = self.request.builds.get(arm);
            let command = build.map_or(&self.request.worker, |b| &b.worker);
            let mut process = ArmProcess::start(arm, command)?;
            process.load(self.load(arm, &plan))?;
            if alone {
                loaded.insert(arm.to_owned(), process.loaded()?);
            }
            loading.push((arm.to_owned(), process));
        }
        for (arm, mut process) in loading {
            if !alone {
                loaded.insert(arm.clone(), process.loaded()?);
            }
            processes.insert(arm, Process::Engine(process));
        }
        let mut peer_tokens = BTreeMap::new();
        for arm in &plan.peers {
            if let Some((process, tokens)) = self.start_peer(arm, &plan)? {
                processes.insert(arm.clone(), Process::Peer(process));
                peer_tokens.insert(arm.clone(), tokens);
            }
        }
        let start_ms = (begun.elapsed().as_secs_f64() * 1e3).round();
        self.identify(&loaded)?;
        let engines = loaded.iter().map(|(name, l)| {
            let ready_ms = Some(l.ready_ms);
            (name.clone(), LaunchedArm { ids: ids(l), tokens: l.tokens.clone(), ready_ms })
        });
        let peers = peer_tokens.into_iter().map(|(name, tokens)| {
            (name, LaunchedArm { ids: BTreeMap::new(), tokens, ready_ms: None })
        });
        let arms = engines.chain(peers).collect();
        self.append(Line::Launch(Launch { launch: next.launch, start_ms, arms }))?;
        if !self.content.run.refusals.is_empty() {
            return Ok(());
        }

        let series: Vec<(usize, String)> =
            plan.series().map(|(point, arm)| (point, arm.to_owned())).collect();
        if plan.turn == Turn::Step {
            // The first quad of a launch favours the arm that has the first turn (by 0.4% of a step on
            // two shared processors): it is run and not measured.
            for (point, arm) in &series {
                self.tell(watch, &format!("launch {}: settling", next.launch + 1));
                self.quad(&plan, next.launch, *point, arm, &mut processes)?;
            }
        }
        let most = next.quads.iter().copied().max().unwrap_or(0);
        let mut states: Vec<DeviceState> = Vec::new();
        for round in 0..most {
            for ((point, arm), quads) in series.iter().zip(&next.quads) {
                if round >= *quads {
                    continue;
                }
                loop {
                    if watch.stopped() || self.too_many_dropped(&plan) {
                        return Ok(());
                    }
                    self.tell(watch, &format!("launch {}: measuring", next.launch + 1));
                    states.extend(self.gauge.iter().map(DeviceGauge::read));
                    let quad = self.quad(&plan, next.launch, *point, arm, &mut processes)?;
                    let dropped = is_dropped(&quad);
                    self.append(Line::Quad(quad))?;
                    if !dropped {
                        break;
                    }
                }
            }
            self.peer_quads(&plan, next.launch, &mut processes, watch)?;
        }
        states.extend(self.gauge.iter().map(DeviceGauge::read));
        // Side by side, as they were loaded: a device takes its time to free what a process had.
        let ended = std::thread::scope(|scope| {
            let ending: Vec<_> = processes
                .into_iter()
                .map(|(arm, process)| scope.spawn(move || (arm, process.finish())))
                .collect();
            ending.into_iter().map(|e| e.join().expect("ending a process")).collect::<Vec<_>>()
        });
        let mut host_bytes = BTreeMap::new();
        for (arm, ended) in ended {
            let bytes = match ended? {
                Ok(bytes) => bytes,
                Err(problem) => self.peer_failed(&arm, problem).map(|()| None)?,
            };
            if let Some(bytes) = bytes {
                host_bytes.insert(arm, bytes);
            }
        }
        let throttle_events = throttled_before
            .zip(throttle_events())
            .map(|(before, after)| after.saturating_sub(before));
        let device = DeviceReading::over(&states);
        let end = LaunchEnd { launch: next.launch, host_bytes, throttle_events, device };
        self.append(Line::LaunchEnd(end))
    }

    pub(super) fn load(&self, arm: &str, plan: &Plan) -> Load {
        let options = &self.request.file.arms()[arm];
        Load {
            model: self.request.model.clone(),
            device: self.request.device,
            prefill: self.request.file.prefill(),
            policy: options.policy.unwrap_or(default_policy(self.request.device)),
            threads: self.threads(arm),
            fusions: options.fusions.clone(),
            apart: options.apart.clone(),
            points: plan.points.clone(),
            regions: self.request.file.spec.measure.regions,
            prompt_seed: self.request.file.prompt_seed(),
            warmup: plan.warmup,
            recipe: options.recipe().unwrap_or_default(),
            slowdown_ratio: match &self.request.part {
                Some(part) if arm != plan.baseline => part.slowdown_ratio,
                _ => options.slowdown_ratio,
            },
        }
    }

    pub(super) fn threads(&self, arm: &str) -> usize {
        let processors = self.content.run.machine.usable_processors.max(1) as usize;
        self.request.file.arms()[arm].threads.unwrap_or(processors)
    }

    fn too_many_dropped(&self, plan: &Plan) -> bool {
        let decides = |q: &QuadLine| is_dropped(q) && !plan.is_peer(&q.arm);
        let dropped =
            self.content.lines.iter().filter(|l| matches!(l, Line::Quad(q) if decides(q)));
        dropped.count() > plan.dropped_limit()
    }

    pub(super) fn tell(&self, watch: &mut dyn Watch, doing: &str) {
        let plan = &self.content.run.plan;
        let kept: Vec<usize> =
            plan.series().map(|(point, arm)| kept(&self.content.lines, point, arm)).collect();
        let fewest = kept.iter().copied().min().unwrap_or(0);
        let look = plan.looks.quads.iter().copied().find(|w| fewest < *w);
        let wanted = look.unwrap_or(plan.most_quads()) * kept.len();
        watch.progress(kept.iter().sum(), wanted, doing);
    }
}

/// The policy of an arm that names none.
fn default_policy(device: DeviceKind) -> Policy {
    Policy::available(device).first().copied().unwrap_or(Policy::Reference)
}
