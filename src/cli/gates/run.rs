//! `assay gates run`.

use super::table::count;
use super::{Console, Failure, Selection, finished};
use crate::cli::OrExit;
use crate::cli::counts::number;
use crate::generation::Seed;
use crate::harness::Partition;
use crate::harness::records::{RunOptions, RunSummary, load};
use crate::harness::report::write_report;
use crate::harness::run::{Launch, Launched, RunError, RunOutcome, recorded_options};
use crate::units::{Exit, shell_word};
use libtest_mimic::{Arguments, ColorSetting, FormatSetting};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// More trials than this are shown as one character each unless `--verbose`.
const LISTED_TRIALS: usize = 60;

/// Which gates to run and how
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  assay gates run all
  assay gates run '*-invariance' --jobs 4
  assay gates run region-inventory/cpu/rope -v
  assay gates run model-reference --set model=DIR --set reference=FILE
  assay gates run all --partition hash:1/4 --junit gates.xml
  assay gates run --resume 20310509t140359z-1f3a

The run is recorded in results/RUN-ID (RUN-ID.partial until it is complete).

Exit codes: 0 every trial passed, was measured or skipped; 1 something failed; 64 a bad file or \
selection; 74 the records could not be written; 130 interrupted (--resume continues).")]
pub(super) struct Args {
    #[command(flatten)]
    selection: Selection,
    /// Worker processes at a time, which share the processors [default: one per processor]
    #[arg(long, short, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    jobs: Option<u16>,
    /// Run one part of several, split by the hash of trial names
    #[arg(long, value_name = "hash:I/N")]
    partition: Option<Partition>,
    /// Start no further trial after the first failure
    #[arg(long)]
    fail_fast: bool,
    /// Run trials in an order that this seed decides
    #[arg(long, value_name = "SEED", allow_negative_numbers = true)]
    shuffle: Option<Seed>,
    /// Continue a run: what it finished is kept, errors are tried again
    #[arg(long, value_name = "RUN")]
    resume: Option<String>,
    /// Fail unless this device is present
    #[arg(long, value_name = "DEVICE", value_parser = ["cpu", "cuda"])]
    require: Vec<String>,
    /// Fail if more trials than this are skipped
    #[arg(long, value_name = "N", value_parser = number, allow_negative_numbers = true)]
    max_skips: Option<u64>,
    /// Folder for records [default: results in the project folder]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Write a JUnit XML file for CI
    #[arg(long, value_name = "FILE")]
    junit: Option<PathBuf>,
    /// Write a Markdown summary for a pull request or a CI step
    #[arg(long, value_name = "FILE")]
    markdown: Option<PathBuf>,
    /// Name every trial, also where there are many
    #[arg(long, short)]
    verbose: bool,
}

/// Runs the gates.
pub(super) fn run(args: Args, console: &Console) -> Result<Exit, Failure> {
    let interrupted = Arc::new(AtomicBool::new(false));
    let flag = interrupted.clone();
    ctrlc::set_handler(move || flag.store(true, Ordering::SeqCst)).or_exit(Exit::Internal)?;
    let launched = launch(&args, interrupted)?.plan().or_exit(Exit::Usage)?;
    for device in &args.require {
        let record = launched.devices.iter().find(|d| d.device.to_string() == *device);
        if let Some(record) = record.filter(|r| r.count == 0) {
            return Err(Failure::new(
                Exit::Fail,
                format!("--require {device}: {}; nothing was run", record.detail),
            ));
        }
    }
    let shown = show(&launched, &args, console);
    let result = launched.run(shown.as_ref());
    let (summary, outcome) = match result {
        Ok(Some(finished)) => finished,
        Ok(None) => return Ok(Exit::Success),
        Err(error) => return Err(not_resumed(error)),
    };
    if args.junit.is_some() || args.markdown.is_some() {
        let trials = load(&outcome.folder).or_exit(Exit::Io)?.trials;
        finished::files(args.junit.as_deref(), args.markdown.as_deref(), &summary, &trials)?;
    }
    let page = write_report(&outcome.folder).or_exit(Exit::Io)?;
    if console.json() {
        console.product_json(&summary)?;
    } else {
        print(&summary, &outcome, console)?;
    }
    console.note(&format!("report: {}", page.display()));
    match outcome.unprinted {
        Some(error) => Err(error).or_exit(Exit::Io),
        None => Ok(exit(&args, &summary, &outcome, console)),
    }
}

fn launch(args: &Args, interrupted: Arc<AtomicBool>) -> Result<Launch, Failure> {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let mut base = super::list::launch(&args.selection)?;
    base.out = args.out.clone().unwrap_or(base.out);
    base.partition = args.partition;
    if let (Some(run), false) = (&args.resume, args.selection.is_named()) {
        // Without a word about gates, a run goes on as what it was.
        let recorded = recorded_options(run, &base.out).map_err(not_resumed)?;
        base.selection = recorded.selection;
        base.long |= recorded.long;
        if base.set.is_empty() {
            base.set = recorded.set;
        }
        if let (None, Some(part)) = (base.partition, &recorded.partition) {
            base.partition = Some(part.parse().map_err(|e: String| Failure::usage(e))?);
        }
    }
    Ok(Launch {
        // Most models of gates are small: one thread each keeps the processors busiest.
        jobs: args.jobs.map_or(processors, usize::from),
        fail_fast: args.fail_fast,
        shuffle: args.shuffle.map(|seed| seed.0),
        resume: args.resume.clone(),
        interrupted,
        ..base
    })
}

/// A run that cannot be continued as asked is a mistake of the command, everything else one of files.
fn not_resumed(error: RunError) -> Failure {
    let exit = if matches!(error, RunError::Resume { .. }) { Exit::Usage } else { Exit::Io };
    Failure::new(exit, error)
}

/// How libtest-mimic shows the run; `None`: not at all.
fn show(launched: &Launched, args: &Args, console: &Console) -> Option<Arguments> {
    if console.quiet() || console.json() {
        return None;
    }
    let many = launched.plan.trials.len() > LISTED_TRIALS && !args.verbose;
    let color = if console.colors_stdout() { ColorSetting::Always } else { ColorSetting::Never };
    let format = if many { FormatSetting::Terse } else { FormatSetting::Pretty };
    Some(Arguments { color: Some(color), format: Some(format), ..Arguments::default() })
}

fn exit(args: &Args, summary: &RunSummary, outcome: &RunOutcome, console: &Console) -> Exit {
    if outcome.interrupted {
        return Exit::Interrupted;
    }
    let skipped = summary.counts.skip;
    if args.max_skips.is_some_and(|most| skipped > most) {
        console
            .error(&format!("{} skipped, more than --max-skips allows", count(skipped, "trial")));
        return summary.exit().worst(Exit::Fail);
    }
    summary.exit()
}

/// The table of gates, the summary line, and how to go on.
fn print(summary: &RunSummary, outcome: &RunOutcome, console: &Console) -> Result<(), Failure> {
    finished::print(summary, outcome.interrupted, console)?;
    if outcome.not_run > 0 {
        console.note(&format!(
            "{} not run; continue with: {}",
            count(outcome.not_run as u64, "trial"),
            resuming(&summary.run.options, &outcome.folder)
        ));
    }
    console.note(&format!("records: {}", outcome.folder.display()));
    Ok(())
}

/// The command that continues a run, as a shell takes it.
fn resuming(options: &RunOptions, folder: &Path) -> String {
    let mut words: Vec<String> = ["assay", "gates", "run"].map(str::to_owned).into();
    words.extend(options.selection.iter().map(|word| shell_word(word)));
    words.extend(["--resume".to_owned(), shell_word(&folder.to_string_lossy())]);
    if options.long {
        words.push("--long".to_owned());
    }
    if let Some(part) = &options.partition {
        words.extend(["--partition".to_owned(), part.clone()]);
    }
    for (key, value) in &options.set {
        words.extend(["--set".to_owned(), shell_word(&format!("{key}={value}"))]);
    }
    words.join(" ")
}
