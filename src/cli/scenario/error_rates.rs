//! `assay scenario error-rates`: how often the harness errs on this machine.

use super::key_value;
use super::run::{Progress, bar, default_device, failure, request};
use crate::cli::{Console, Failure, OrExit, Tone};
use crate::harness::report::write_report;
use crate::harness::scenario::{
    Campaign, CampaignEnd, ErrorRun, Rate, ScenarioFile, load_scenario_run, run_campaign,
};
use crate::units::Exit;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Which scenario to take and where to go on
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  assay scenario error-rates
  assay scenario error-rates --resume results/ID-aa-cpu-error-rates.partial
  assay report render results/ID-aa-cpu-error-rates --out reports/error-rates

Measures two arms that are the same: one long series that pseudo-runs are resampled out of, real \
runs with the threshold at a ratio of 1, and real runs with an injected slowdown. The scenario's \
`error_rates` says how many. Leave the machine alone meanwhile; Ctrl-C keeps what was measured.

Decision reports on a machine like this one show the figures, from the latest campaign under \
reports/ or results/. Exit code: 0 if every rate is within its limit and real runs agree with \
resampled ones, else 1.")]
pub(super) struct Args {
    /// A scenario with `error_rates`
    #[arg(value_name = "SCENARIO", default_value = "aa-cpu")]
    scenario: String,
    /// Give a value in place of the file's, as `scenario run` takes it
    #[arg(long = "set", value_name = "KEY=VALUE", value_parser = key_value)]
    set: Vec<(String, String)>,
    /// Continue a campaign that was stopped
    #[arg(long, value_name = "RUN")]
    resume: Option<PathBuf>,
    /// Where the run folder is made
    #[arg(long, value_name = "DIR", default_value = "results")]
    out: PathBuf,
}

/// Runs or continues a campaign.
pub(super) fn run(args: Args, console: &Console) -> Result<Exit, Failure> {
    let stop = Arc::new(AtomicBool::new(false));
    let flag = stop.clone();
    // A second handler cannot be installed; then Ctrl-C ends the process at once, records kept.
    let _ = ctrlc::set_handler(move || flag.store(true, Ordering::SeqCst));
    let mut set: BTreeMap<String, String> = crate::cli::set_values(&args.set)?;
    let (mut out, mut gates) = (args.out, None);
    let file = match &args.resume {
        None => super::selected(&[args.scenario])?.remove(0).with(&set).map_err(Failure::usage)?,
        Some(folder) => {
            // Every part says what it belongs to; one of the series is the first.
            let first = ["series-001", "series-001.partial"].map(|name| folder.join(name));
            let first = first.iter().find(|f| f.join("run.json").is_file()).ok_or_else(|| {
                Failure::usage(format!("{} holds no part of a campaign", folder.display()))
            })?;
            let record = load_scenario_run(first).or_exit(Exit::Io)?.content.run;
            let path = super::root()?.join(&record.scenario.path);
            set = record.scenario.set;
            gates = Some(record.gates);
            out = folder.parent().unwrap_or(Path::new("")).to_owned();
            ScenarioFile::read(&path).and_then(|f| f.with(&set)).map_err(Failure::usage)?
        }
    };
    if args.resume.is_none() {
        super::check_surroundings(std::slice::from_ref(&file), &set)?;
    }
    let Some(spec) = file.error_rates() else {
        return Err(Failure::usage(format!(
            "{} has no `error_rates`; `assay scenario error-rates aa-cpu` is the shipped one",
            file.name()
        )));
    };
    let campaign = Campaign {
        request: request(&file, default_device(&file), set, &out, gates, console)?,
        spec,
        resume: args.resume.clone(),
    };
    let mut watch = Progress { bar: bar(console), stop, part: String::new() };
    let end = run_campaign(&campaign, &mut watch);
    watch.bar.finish_and_clear();
    match end.map_err(|error| failure(&file, &error))? {
        CampaignEnd::Stopped { folder } => {
            console.diagnostic(&format!(
                "stopped; records kept, continue with\n  assay scenario error-rates --resume {}",
                folder.display()
            ));
            Ok(Exit::Interrupted)
        }
        CampaignEnd::Complete { folder, run } => {
            let page = write_report(&folder).or_exit(Exit::Io)?;
            print(&run, &page, console)
        }
    }
}

fn print(run: &ErrorRun, page: &Path, console: &Console) -> Result<Exit, Failure> {
    let explain = |message: String| Failure::new(Exit::Inconclusive, message);
    let errors = run.errors().map_err(explain)?;
    let summary = run.summary().map_err(explain)?;
    let exit = if summary.holds { Exit::Success } else { Exit::Fail };
    if console.json() {
        console.product_json(
            &serde_json::json!({ "summary": summary, "errors": errors, "report": page }),
        )?;
        return Ok(exit);
    }
    let (word, tone) = if summary.holds {
        ("within limits", Tone::Good)
    } else {
        ("not within limits", Tone::Bad)
    };
    let mut text = format!("error rates: {}\n", console.paint(word, tone));
    let mut line = |what: &str, rate: &Rate, runs: u64| {
        text.push_str(&format!(
            "  {what:<24}{:>7.2}% ({:.2}% to {:.2}%) of {} pseudo-runs, {} of {runs} real runs\n",
            100.0 * rate.share,
            100.0 * rate.lower,
            100.0 * rate.upper,
            summary.pseudo_runs,
            rate.real
        ));
    };
    line("false admits", &summary.false_admit, summary.real_runs);
    line("false declines", &summary.false_decline, summary.real_runs);
    let slowdown = format!("missed slowdowns of {}%", 100.0 * summary.slowdown_ratio);
    line(&slowdown, &summary.missed, summary.slowed_runs);
    for problem in &errors.problems {
        text.push_str(&format!("  {problem}\n"));
    }
    text.push_str(&format!("  report: {}\n", page.display()));
    console.product(&text)?;
    Ok(exit)
}
