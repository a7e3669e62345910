//! Runs a scenario: launches processes, measures quads, records every line, decides at each look.

use super::bandwidth::ReadProbe;
use super::process::{ArmProcess, WorkerCommand, WorkerError};
use super::schedule::{kept, next_launch};
use super::store::{Store, StoredRun};
use super::worker::{Load, Loaded, ModelSource};
use super::{
    ArmRecord, GateEvidence, Launch, LaunchEnd, LaunchedArm, Line, Plan, QuadLine,
    SCENARIO_RECORD_VERSION, ScenarioFacts, ScenarioFile, ScenarioKind, ScenarioRecord,
    ScenarioRun, Slot, decide, is_dropped,
};
use crate::backend::{DeviceKind, Policy};
use crate::engine::manifest::{Manifest, compare};
use crate::harness::records::{BuildRecord, MachineRecord, RecordError};
use crate::units::{throttle_events, utc_now};
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
    let probe = ReadProbe::new(MachineRecord::current().usable_processors as usize);
    let mut runner = Runner { request, store, content, probe };
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

fn record(request: &RunRequest<'_>) -> ScenarioRecord {
    let file = request.file;
    let spec = &file.spec;
    let started = utc_now();
    let stamp: String = started
        .chars()
        .filter(char::is_ascii_alphanumeric)
        .map(|c| c.to_ascii_lowercase())
        .collect();
    ScenarioRecord {
        schema_version: SCENARIO_RECORD_VERSION,
        kind: ScenarioKind::ScenarioRun,
        run_id: format!("{stamp}-{}", file.name()),
        command: request.command.clone(),
        started,
        finished: None,
        build: BuildRecord::current(),
        machine: MachineRecord::current(),
        scenario: ScenarioFacts {
            question: file.question().to_owned(),
            track: spec.track,
            path: request.recorded_path.clone(),
            text: file.text.clone(),
            spec_digest: file.digest.to_string(),
            device: request.device,
            model: describe(&request.model),
            set: request.set.clone(),
            differs_in: spec.differs_in.clone(),
            bound: spec.bound,
            error_rates: file.error_rates().cloned(),
            expected: spec.expect_decision.get(&request.device).copied(),
        },
        plan: Plan::of(file),
        gates: request.gates.clone(),
        arms: BTreeMap::new(),
        refusals: Vec::new(),
        parts: 1,
        last_line: None,
    }
}

/// The model in words, without the folders of this machine.
fn describe(model: &ModelSource) -> String {
    let name = |path: &Path| {
        path.file_name().map_or_else(|| "model".into(), |n| n.to_string_lossy().into_owned())
    };
    match model {
        ModelSource::Folder { path } => format!("checkpoint {}", name(path)),
        ModelSource::Synthetic { descriptor, seed } => {
            format!("synthetic weights (seed {seed}) of {}", name(descriptor))
        }
    }
}

/// Checks that an earlier run is the same experiment on the same build and machine.
fn resumable(stored: &StoredRun, fresh: &ScenarioRecord) -> Result<(), RunError> {
    let old = &stored.content.run;
    let reason = if old.finished.is_some() {
        "it is complete"
    } else if old.scenario.spec_digest != fresh.scenario.spec_digest {
        "the scenario file has changed"
    } else if old.build.digest != fresh.build.digest {
        "the build has changed"
    } else if !old.machine.is_like(&fresh.machine) {
        "this is another machine"
    } else if (old.scenario.device, &old.scenario.set)
        != (fresh.scenario.device, &fresh.scenario.set)
        || old.scenario.model != fresh.scenario.model
    {
        "device, model or --set values differ"
    } else {
        return Ok(());
    };
    Err(RunError::Resume { folder: stored.folder.clone(), reason: reason.into() })
}

struct Runner<'a> {
    request: &'a RunRequest<'a>,
    store: Store,
    content: ScenarioRun,
    probe: ReadProbe,
}

impl Runner<'_> {
    fn append(&mut self, line: Line) -> Result<(), RunError> {
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
        for arm in plan.arms() {
            let mut process = ArmProcess::start(arm, &self.request.worker)?;
            loaded.insert(arm.to_owned(), process.load(self.load(arm, &plan))?);
            processes.insert(arm.to_owned(), process);
        }
        let start_ms = (begun.elapsed().as_secs_f64() * 1e3).round();
        self.identify(&loaded)?;
        let arms = loaded
            .iter()
            .map(|(name, l)| (name.clone(), LaunchedArm { ids: ids(l), tokens: l.tokens.clone() }))
            .collect();
        self.append(Line::Launch(Launch { launch: next.launch, start_ms, arms }))?;
        if !self.content.run.refusals.is_empty() {
            return Ok(());
        }

        let series: Vec<(usize, String)> =
            plan.series().map(|(point, arm)| (point, arm.to_owned())).collect();
        let most = next.quads.iter().copied().max().unwrap_or(0);
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
                    let quad = self.quad(&plan, next.launch, *point, arm, &mut processes)?;
                    let dropped = is_dropped(&quad);
                    self.append(Line::Quad(quad))?;
                    if !dropped {
                        break;
                    }
                }
            }
        }
        let mut host_bytes = BTreeMap::new();
        for (arm, process) in processes {
            if let Some(bytes) = process.finish()? {
                host_bytes.insert(arm, bytes);
            }
        }
        let throttle_events = throttled_before
            .zip(throttle_events())
            .map(|(before, after)| after.saturating_sub(before));
        self.append(Line::LaunchEnd(LaunchEnd { launch: next.launch, host_bytes, throttle_events }))
    }

    fn load(&self, arm: &str, plan: &Plan) -> Load {
        let options = &self.request.file.arms()[arm];
        Load {
            model: self.request.model.clone(),
            policy: options.policy.unwrap_or(default_policy(self.request.device)),
            threads: options
                .threads
                .unwrap_or(self.content.run.machine.usable_processors.max(1) as usize),
            fusions: options.fusions.clone(),
            points: plan.points.clone(),
            prompt_seed: self.request.file.prompt_seed(),
            warmup: plan.warmup,
            recipe: options.recipe().unwrap_or_default(),
        }
    }

    /// A B B A with a bandwidth reading before, in the middle and after.
    fn quad(
        &self,
        plan: &Plan,
        launch: u32,
        point: usize,
        arm: &str,
        processes: &mut BTreeMap<String, ArmProcess>,
    ) -> Result<QuadLine, RunError> {
        let mut readings = vec![self.reading()];
        let mut samples = Vec::with_capacity(4);
        for (i, slot) in Slot::QUAD.into_iter().enumerate() {
            if i == 2 {
                readings.push(self.reading());
            }
            let name = plan.arm(slot, arm);
            let process = processes.get_mut(name).expect("every arm of the plan has a process");
            samples.push(process.sample(point)?);
        }
        readings.push(self.reading());
        Ok(QuadLine {
            launch,
            point,
            arm: arm.to_owned(),
            samples: samples.try_into().expect("a quad has four slots"),
            bandwidth_bytes_per_second: readings,
        })
    }

    /// Whole bytes per second.
    fn reading(&self) -> f64 {
        self.probe.bytes_per_second().round()
    }

    /// Records what the arms are at the first launch; later launches must be the same.
    fn identify(&mut self, loaded: &BTreeMap<String, Loaded>) -> Result<(), RunError> {
        let device = self.request.device;
        let first = self.content.run.arms.is_empty();
        for (name, l) in loaded {
            let load = self.load(name, &self.content.run.plan);
            if first {
                let arm = ArmRecord {
                    policy: load.policy.resolve(device).unwrap_or(load.policy),
                    threads: load.threads,
                    manifest: l.manifest.clone(),
                    bytes_per_token: l.bytes_per_token.clone(),
                };
                self.content.run.arms.insert(name.clone(), arm);
            } else {
                let known = &self.content.run.arms[name].manifest;
                let differing = differing(known, &l.manifest);
                if !differing.is_empty() {
                    let message =
                        format!("{name} changed between launches in {}", differing.join(", "));
                    self.content.run.refusals.push(message);
                }
            }
        }
        if first {
            let allowed = super::identity::allowed(&self.content.run.scenario.differs_in);
            let baseline = &loaded[&self.content.run.plan.baseline].manifest;
            for candidate in &self.content.run.plan.candidates {
                let extra: Vec<String> = differing(baseline, &loaded[candidate].manifest)
                    .into_iter()
                    .filter(|b| !allowed.contains(b))
                    .collect();
                if !extra.is_empty() {
                    self.content.run.refusals.push(format!(
                        "the manifests of {candidate} and the baseline differ in {}; the scenario allows {}",
                        extra.join(", "),
                        if allowed.is_empty() { "no difference".into() } else { allowed.join(", ") }
                    ));
                }
            }
        }
        self.store.update(&self.content.run)?;
        Ok(())
    }

    fn too_many_dropped(&self, plan: &Plan) -> bool {
        let dropped =
            self.content.lines.iter().filter(|l| matches!(l, Line::Quad(q) if is_dropped(q)));
        dropped.count() > plan.dropped_limit()
    }

    fn tell(&self, watch: &mut dyn Watch, doing: &str) {
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

/// Names of the blocks in which two manifests differ.
fn differing(left: &serde_json::Value, right: &serde_json::Value) -> Vec<String> {
    match (super::manifest_of(left), super::manifest_of(right)) {
        (Some(left), Some(right)) => {
            compare(&left, &right).differing().iter().map(ToString::to_string).collect()
        }
        _ => vec!["a manifest that cannot be read".into()],
    }
}

fn ids(loaded: &Loaded) -> BTreeMap<String, String> {
    let Some(manifest) = super::manifest_of(&loaded.manifest) else { return BTreeMap::new() };
    let ids: BTreeMap<String, serde_json::Value> = Manifest::ids(&manifest).into_iter().collect();
    ids.into_iter()
        .filter_map(|(key, id)| Some((key, id.as_str()?.get(..12)?.to_owned())))
        .collect()
}
