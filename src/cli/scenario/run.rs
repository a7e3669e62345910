//! `assay scenario run`.

use super::super::console::Tone;
use super::super::{Console, Failure, OrExit};
use crate::backend::DeviceKind;
use crate::harness::report::write_report;
use crate::harness::scenario::{
    Decision, GateEvidence, GateState, RunEnd, RunError, RunRequest, ScenarioFile, ScenarioRun,
    StoredRun, Watch, WorkerCommand, gate_state, load_scenario_run, model_source, run_scenario,
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
  assay scenario run --resume results/20310509t140359z-cpu-decode.partial

The gates that a scenario names must be green on this machine with this build: their latest
records under results/ count, and gates without one are run first. Leave the machine alone while
it measures.

Exit code: 0 if the decision is the expected one (without an expectation: admit), 1 for another
admit or decline, 4 for an unexpected inconclusive or invalid; the worst of several scenarios.")]
pub(super) struct Args {
    /// Names or files; every scenario of the project without any
    #[arg(value_name = "SCENARIO", conflicts_with = "resume")]
    scenarios: Vec<String>,
    /// Give a value in place of the file's: `model=DIR`
    #[arg(long = "set", value_name = "KEY=VALUE", value_parser = key_value)]
    set: Vec<(String, String)>,
    /// Continue an interrupted run
    #[arg(long, value_name = "RUN")]
    resume: Option<PathBuf>,
    /// Where the run folder is made
    #[arg(long, value_name = "DIR", default_value = "results")]
    out: PathBuf,
}

fn key_value(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some(("model", value)) if !value.is_empty() => Ok(("model".into(), value.into())),
        Some((key, _)) if key != "model" => {
            Err(format!("a scenario takes `model=DIR`, not `{key}`"))
        }
        _ => Err("expected model=DIR".to_owned()),
    }
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
        let file = ScenarioFile::read(&path).map_err(Failure::usage)?;
        let set = recorded.set.clone();
        let out = folder.parent().unwrap_or(Path::new("")).to_owned();
        return one(&file, set, &out, Some(stored), &stop, console);
    }
    let set: BTreeMap<String, String> = args.set.iter().cloned().collect();
    for file in super::selected(&args.scenarios)? {
        let found = one(&file, set.clone(), &args.out, None, &stop, console)?;
        exit = exit.worst(found);
        if found == Exit::Interrupted {
            break;
        }
    }
    Ok(exit)
}

fn one(
    file: &ScenarioFile,
    set: BTreeMap<String, String>,
    out: &Path,
    earlier: Option<StoredRun>,
    stop: &Arc<AtomicBool>,
    console: &Console,
) -> Result<Exit, Failure> {
    let device = DeviceKind::Cpu;
    let model = model_source(file, device, &set).map_err(Failure::usage)?;
    console.note(&format!("{}: {}", file.name(), file.question()));
    console.note(&format!("{}: profile {device}", file.name()));
    let gates = match &earlier {
        Some(stored) => stored.content.run.gates.clone(),
        None => established(&file.spec.gates, out, console)?,
    };
    let root = super::root()?;
    let path = std::path::absolute(&file.path)?;
    let recorded = path.strip_prefix(&root).unwrap_or(&file.path);
    let request = RunRequest {
        file,
        device,
        model,
        recorded_path: recorded.to_string_lossy().replace('\\', "/"),
        set,
        gates,
        command: std::env::args().collect(),
        out,
        worker: WorkerCommand {
            program: std::env::current_exe()?,
            arguments: vec!["scenario".into(), "worker".into()],
        },
    };
    let mut watch = Progress { bar: bar(console), stop: stop.clone() };
    let end = run_scenario(&request, earlier, &mut watch);
    watch.bar.finish_and_clear();
    let end = match end {
        Ok(end) => end,
        Err(error) => {
            let exit = match &error {
                RunError::Record(_) => Exit::Io,
                RunError::Worker(_) => Exit::Fail,
                RunError::Resume { .. } => Exit::Usage,
            };
            return Err(Failure::new(exit, format!("{}: {error}", file.name())));
        }
    };
    match end {
        RunEnd::Stopped { folder } => {
            console.diagnostic(&format!(
                "stopped; records kept, continue with\n  assay scenario run --resume {}",
                folder.display()
            ));
            Ok(Exit::Interrupted)
        }
        RunEnd::Decided { folder, run } => {
            let report = write_report(&folder).or_exit(Exit::Io)?;
            summary(&run, &report, console)?;
            Ok(run.exit())
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
        Command::new(std::env::current_exe()?)
            .args(["gates", "run"])
            .args(&names)
            .arg("--out")
            .arg(results)
            .stdout(Stdio::null())
            .status()
            .or_exit_with(Exit::Io, || "cannot run the gates".to_owned())?;
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
    text.push_str(&format!("  report: {}\n", report.display()));
    console.product(&text)?;
    Ok(())
}

struct Progress {
    bar: ProgressBar,
    stop: Arc<AtomicBool>,
}

impl Watch for Progress {
    fn progress(&mut self, kept: usize, wanted: usize, doing: &str) {
        self.bar.set_length(wanted as u64);
        self.bar.set_position(kept as u64);
        self.bar.set_message(doing.to_owned());
    }

    fn stopped(&self) -> bool {
        self.stop.load(Ordering::SeqCst)
    }
}

fn bar(console: &Console) -> ProgressBar {
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
