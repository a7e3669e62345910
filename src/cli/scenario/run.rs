//! `assay scenario run`.

use super::super::console::Tone;
use super::super::{Console, Failure, OrExit};
use super::key_value;
use crate::backend::DeviceKind;
use crate::backend::cuda::devices as cuda_devices;
use crate::harness::report::write_report;
use crate::harness::scenario::{
    ArmKind, BuildError, CampaignWatch, Decision, GateEvidence, GateState, ModelSource, RunEnd,
    RunError, RunRequest, ScenarioFile, ScenarioRun, StoredRun, Watch, WorkerCommand,
    established as known_rates, folder_digest, gate_state, load_scenario_run, model_source,
    read_recorded, resolve_build, run_scenario,
};
use crate::units::Exit;
use indicatif::{ProgressBar, ProgressStyle};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Which scenarios to run
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  assay scenario run cpu-decode
  assay scenario run cpu-decode --set model=./SmolLM2-135M-Instruct
  assay scenario run cpu-decode --set workload.prompt_tokens=64 \\
                                --set 'measure.quads=[20]'
  assay scenario run --resume results/20310509t140359z-1f3a-cpu-decode.partial

The gates that a scenario names must be green on this machine with this build: their latest \
records under results/ count, and gates without one are run first. Leave the machine alone while \
it measures.

Exit code: 0 if the decision is the expected one (without an expectation: admit), 1 for another \
admit or decline, 4 for an unexpected inconclusive or invalid; the worst of several scenarios.")]
pub(super) struct Args {
    /// Names or files; every scenario of the project without any
    #[arg(value_name = "SCENARIO", conflicts_with = "resume")]
    scenarios: Vec<String>,
    /// Give a value in place of the file's: `model=DIR`, or a path such as
    /// `workload.decode_tokens=16`, `measure.quads=[20,40]`, `arms.candidate.threads=2`
    #[arg(long = "set", value_name = "KEY=VALUE", value_parser = key_value)]
    set: Vec<(String, String)>,
    /// The kind of device whose profile is measured, `cpu` or `cuda` [default: the file's, `cpu` of
    /// both]
    #[arg(long, value_name = "KIND", conflicts_with = "resume")]
    device: Option<DeviceKind>,
    /// Continue an interrupted run
    #[arg(long, value_name = "RUN")]
    resume: Option<PathBuf>,
    /// Where the run folder is made
    #[arg(long, value_name = "DIR", default_value = "results")]
    out: PathBuf,
}

/// Runs every selected scenario.
pub(super) fn run(args: Args, console: &Console) -> Result<Exit, Failure> {
    let stop = Arc::new(AtomicBool::new(false));
    let flag = stop.clone();
    // A second handler cannot be installed; then Ctrl-C ends the process at once, records kept.
    let _ = ctrlc::set_handler(move || flag.store(true, Ordering::SeqCst));
    let mut exit = Exit::Success;
    if let Some(folder) = &args.resume {
        let stored = load_scenario_run(folder).or_exit(Exit::Io)?;
        let recorded = &stored.content.run.scenario;
        let path = super::root()?.join(&recorded.path);
        let set = recorded.set.clone();
        let file = ScenarioFile::read(&path).and_then(|f| f.with(&set)).map_err(Failure::usage)?;
        let out = folder.parent().unwrap_or(Path::new("")).to_owned();
        let device = recorded.device;
        return one(&file, device, set, &out, Some(stored), &stop, console);
    }
    let every = args.scenarios.is_empty();
    let set = crate::cli::set_values(&args.set)?;
    // Every file is checked before the first is measured.
    let files: Vec<ScenarioFile> = super::selected(&args.scenarios)?
        .into_iter()
        .map(|file| file.with(&set))
        .collect::<Result<_, _>>()
        .map_err(Failure::usage)?;
    super::check_surroundings(&files, &set)?;
    for file in files {
        let device = args.device.unwrap_or(default_device(&file));
        if every && device == DeviceKind::Cuda && cuda_devices().or_exit(Exit::Usage)?.is_empty() {
            console.note(&format!("{}: not run, this machine has no CUDA device", file.name()));
            continue;
        }
        let found = one(&file, device, set.clone(), &args.out, None, &stop, console)?;
        exit = exit.worst(found);
        if found == Exit::Interrupted {
            break;
        }
    }
    Ok(exit)
}

/// The device of a run that names none: the one that the file has a profile for.
pub(super) fn default_device(file: &ScenarioFile) -> DeviceKind {
    let has = |device| file.spec.profiles.contains_key(&device);
    if has(DeviceKind::Cuda) && !has(DeviceKind::Cpu) { DeviceKind::Cuda } else { DeviceKind::Cpu }
}

fn one(
    file: &ScenarioFile,
    device: DeviceKind,
    set: BTreeMap<String, String>,
    out: &Path,
    earlier: Option<StoredRun>,
    stop: &Arc<AtomicBool>,
    console: &Console,
) -> Result<Exit, Failure> {
    let gates = earlier.as_ref().map(|stored| stored.content.run.gates.clone());
    let request = request(file, device, set, out, gates, console)?;
    let mut watch = Progress { bar: bar(console), stop: stop.clone(), part: String::new() };
    let end = run_scenario(&request, earlier, &mut watch);
    watch.bar.finish_and_clear();
    match end.map_err(|error| failure(file, &error))? {
        RunEnd::Stopped { folder } => {
            console.diagnostic(&format!(
                "stopped; records kept, continue with\n  assay scenario run --resume {}",
                folder.display()
            ));
            Ok(Exit::Interrupted)
        }
        RunEnd::Decided { folder, run } => {
            let report = write_report(&folder).or_exit(Exit::Io)?;
            for (name, peer) in &run.run.peers {
                if let Some(problem) = &peer.problem {
                    console.diagnostic(&format!("live peer {name} was given up: {problem}"));
                }
            }
            summary(&run, &report, console)?;
            Ok(run.exit())
        }
    }
}

pub(super) fn failure(file: &ScenarioFile, error: &RunError) -> Failure {
    let exit = match error {
        RunError::Record(_) => Exit::Io,
        // 1 is a decision; nothing was decided.
        RunError::Worker(error) if error.refused => Exit::Usage,
        RunError::Worker(_) => Exit::Internal,
        RunError::Resume { .. } => Exit::Usage,
        RunError::ShortSeries { .. } => Exit::Fail,
        RunError::Memory(_) => Exit::Internal,
    };
    Failure::new(exit, format!("{}: {error}", file.name()))
}

/// What a run of the file needs: the model, green gates, other builds, records to show beside.
/// `gates` are known to be green where a run goes on.
pub(super) fn request<'a>(
    file: &'a ScenarioFile,
    device: DeviceKind,
    set: BTreeMap<String, String>,
    out: &'a Path,
    gates: Option<Vec<GateEvidence>>,
    console: &Console,
) -> Result<RunRequest<'a>, Failure> {
    if device == DeviceKind::Cuda && cuda_devices().or_exit(Exit::Usage)?.is_empty() {
        return Err(Failure::usage(format!(
            "{}: this machine has no CUDA device; `assay doctor` says what was looked for",
            file.name()
        )));
    }
    let model = model_source(file, device, &set).map_err(Failure::usage)?;
    console.note(&format!("{}: {}", file.name(), file.question()));
    console.note(&format!("{}: profile {device}", file.name()));
    let root = super::root()?;
    let known = gates.is_some();
    let mut gates = match gates {
        Some(gates) => gates,
        None => established(&file.spec.gates, out, console)?,
    };
    let (mut builds, mut beside) = (BTreeMap::new(), BTreeMap::new());
    for (name, arm) in file.arms() {
        if let Some(build) = &arm.build {
            let tell = |words: &str| console.note(words);
            let build = resolve_build(name, build, &file.path, &root, &tell).map_err(|e| {
                let unknown = matches!(e, BuildError::Unknown { .. });
                Failure::new(if unknown { Exit::Usage } else { Exit::Fail }, e)
            })?;
            if !known {
                console.note(&format!("arm {name}: running the gates with its build"));
                gates.extend(build.establish(name, &file.spec.gates).or_exit(Exit::Fail)?);
            }
            builds.insert(name.clone(), build);
        }
        if let Some(recorded) = &arm.recorded {
            let metrics = &file.spec.measure.metrics;
            let record = read_recorded(name, recorded, &file.path, metrics).or_exit(Exit::Io)?;
            beside.insert(name.clone(), record);
        }
    }
    let has_peers = file.arms().values().any(|arm| arm.kind() == ArmKind::Peer);
    let (model_digest, vocab) = if has_peers { for_peers(&model)? } else { (None, 0) };
    let path = std::path::absolute(&file.path)?;
    let recorded = path.strip_prefix(&root).unwrap_or(&file.path);
    let error_rates = known_rates(&[root.join("reports"), out.to_owned()], device);
    Ok(RunRequest {
        file,
        device,
        model,
        recorded_path: recorded.to_string_lossy().replace('\\', "/"),
        set,
        gates,
        command: crate::cli::command_line(),
        out,
        worker: WorkerCommand {
            program: std::env::current_exe()?,
            arguments: vec!["scenario".into(), "worker".into()],
        },
        builds,
        beside,
        model_digest,
        vocab,
        error_rates,
        part: None,
    })
}

/// What live peers are compared by, and the ids that their prompts are drawn from.
fn for_peers(model: &ModelSource) -> Result<(Option<String>, usize), Failure> {
    match model {
        ModelSource::Folder { path } => {
            let digest = folder_digest(path).or_exit(Exit::Io)?;
            let model = crate::weights::Model::open(path).or_exit(Exit::Usage)?;
            Ok((Some(digest.to_string()), model.descriptor.vocab))
        }
        ModelSource::Synthetic { descriptor, .. } => {
            let descriptor =
                crate::descriptor::Descriptor::read(descriptor).or_exit(Exit::Usage)?;
            Ok((None, descriptor.vocab))
        }
    }
}

/// The gates a scenario rests on, run first where no record speaks of them.
fn established(
    gates: &[String],
    results: &Path,
    console: &Console,
) -> Result<Vec<GateEvidence>, Failure> {
    let unknown: Vec<&String> =
        gates.iter().filter(|g| gate_state(results, g) == GateState::Unknown).collect();
    if !unknown.is_empty() {
        let names: Vec<&str> = unknown.iter().map(|g| g.as_str()).collect();
        console.note(&format!("running the gates it rests on first: {}", names.join(", ")));
        // The product of this command is the decision; what the gates print is a diagnostic.
        let status = Command::new(std::env::current_exe()?)
            .args(["gates", "run"])
            .args(&names)
            .arg("--out")
            .arg(results)
            .stdout(Stdio::null())
            .status()
            .or_exit_with(Exit::Io, || "cannot run the gates".to_owned())?;
        if status.code() == Some(i32::from(Exit::Io.code())) {
            let message = format!("the gates cannot be recorded in {}", results.display());
            return Err(Failure::new(Exit::Io, message));
        }
    }
    gates
        .iter()
        .map(|gate| match gate_state(results, gate) {
            GateState::Green(evidence) => Ok(evidence),
            GateState::Red { run_id, trial, message } => Err(Failure::new(
                Exit::Fail,
                format!("nothing is measured: gate `{gate}` is red in run {run_id}\n  {trial}: {message}"),
            )),
            GateState::Unknown => Err(Failure::new(
                Exit::Fail,
                format!("nothing is measured: gate `{gate}` could not be established here; `assay gates run {gate}` says why"),
            )),
        })
        .collect()
}

fn summary(run: &ScenarioRun, report: &Path, console: &Console) -> Result<(), Failure> {
    let verdict = run.verdict();
    if console.json() {
        console.product_json(&serde_json::json!({
            "scenario": run.run.plan.scenario,
            "run_id": run.run.run_id,
            "expected": run.run.scenario.expected,
            "verdict": verdict,
            "report": report,
        }))?;
        return Ok(());
    }
    let tone = match verdict.decision {
        Decision::Admit => Tone::Good,
        Decision::Decline => Tone::Bad,
        Decision::Inconclusive | Decision::Invalid => Tone::Caution,
    };
    let word = console.paint(&verdict.decision.to_string(), tone);
    let mut text = format!("{}: {word}", run.run.plan.scenario);
    match run.run.scenario.expected {
        Some(expected) if expected == verdict.decision => text.push_str(" (as expected)"),
        Some(expected) => text.push_str(&format!(" (expected {expected})")),
        None => {}
    }
    text.push('\n');
    for reason in &verdict.reasons {
        text.push_str(&format!("  {reason}\n"));
    }
    for name in run.run.peers.keys() {
        match run.peer_ratios(name) {
            Ok(ratios) => {
                for c in ratios.iter().filter(|c| !c.metric.is_per_launch()) {
                    let ratio = c.estimate.log_ratio.exp();
                    text.push_str(&format!(
                        "  {name} at {}: {} peer ratio {ratio:.3} (no part of the decision)\n",
                        c.point, c.metric
                    ));
                }
            }
            Err(reason) => text.push_str(&format!("  {name}: no peer ratio: {reason}\n")),
        }
    }
    text.push_str(&format!("  report: {}\n", report.display()));
    console.product(&text)?;
    Ok(())
}

pub(super) struct Progress {
    pub(super) bar: ProgressBar,
    pub(super) stop: Arc<AtomicBool>,
    /// The part of a campaign that runs.
    pub(super) part: String,
}

impl CampaignWatch for Progress {
    fn part(&mut self, name: &str, index: usize, parts: usize) {
        self.part = format!("[{}/{parts}] {name}: ", index + 1);
    }
}

impl Watch for Progress {
    fn progress(&mut self, kept: usize, wanted: usize, doing: &str) {
        self.bar.set_length(wanted as u64);
        self.bar.set_position(kept as u64);
        self.bar.set_message(format!("{}{doing}", self.part));
    }

    fn stopped(&self) -> bool {
        self.stop.load(Ordering::SeqCst)
    }
}

pub(super) fn bar(console: &Console) -> ProgressBar {
    if !console.progress() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template(
        "{bar:32} {pos}/{len} quads to the next look  {msg}  {elapsed}",
    );
    let bar = ProgressBar::new(1);
    if let Ok(style) = style {
        bar.set_style(style);
    }
    bar
}
