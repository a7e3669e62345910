//! `assay report merge`.

use crate::cli::gates::finished;
use crate::cli::{Console, Failure, OrExit};
use crate::harness::records::{MergeError, load, merge, summarise};
use crate::harness::report::write_report;
use crate::units::Exit;
use std::path::PathBuf;

/// Which runs to join
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  assay report merge results/20310509t140359z-1f3a results/20310509t140402z-77c0
  assay report merge shard-*/2* --junit gates.xml --markdown summary.md

The runs must come from one build and read the same gate files; machines may differ. A trial that \
several runs executed keeps its gravest verdict, and any result outranks a skip. Trials that were \
planned and not run stay missing, and so does a part of a partition that is not given.

Exit codes: 0 every trial passed, was measured or skipped; 1 something failed or is missing; 64 the \
runs do not belong together; 74 a file could not be read or written.")]
pub(super) struct Args {
    /// Run folders, complete or `.partial`
    #[arg(value_name = "RUN", required = true)]
    runs: Vec<PathBuf>,
    /// Where the folder of the joined run is made
    #[arg(long, value_name = "DIR", default_value = "results")]
    out: PathBuf,
    /// Write a JUnit XML file for CI
    #[arg(long, value_name = "FILE")]
    junit: Option<PathBuf>,
    /// Write a Markdown summary for a pull request or a CI step
    #[arg(long, value_name = "FILE")]
    markdown: Option<PathBuf>,
}

/// Joins the runs.
pub(super) fn run(args: &Args, console: &Console) -> Result<Exit, Failure> {
    let mut runs = Vec::new();
    for folder in &args.runs {
        let run = load(folder).or_exit(Exit::Io)?;
        if !run.is_complete() {
            let (missing, _) = run.missing();
            console.warning(&format!(
                "{} was stopped: {missing} of its trials have no record and count as missing",
                folder.display()
            ));
        }
        runs.push(run);
    }
    let merged = match merge(&runs, &args.out, crate::cli::command_line()) {
        Ok(merged) => merged,
        Err(error @ MergeError::Apart { .. }) => return Err(Failure::usage(error)),
        Err(error) => return Err(error).or_exit(Exit::Io),
    };
    let joined = load(&merged.folder).or_exit(Exit::Io)?;
    let summary = summarise(&joined);
    finished::files(args.junit.as_deref(), args.markdown.as_deref(), &summary, &joined.trials)?;
    if console.json() {
        console.product_json(&summary)?;
    } else {
        finished::print(&summary, false, console)?;
    }
    if merged.shared > 0 {
        console.note(&format!(
            "{} executed by more than one run; the gravest result counts",
            finished::trials(merged.shared)
        ));
    }
    for name in &merged.disputed {
        console.warning(&format!("the runs disagree about {name}"));
    }
    console.note(&format!("records: {}", merged.folder.display()));
    let page = write_report(&merged.folder).or_exit(Exit::Io)?;
    console.note(&format!("report: {}", page.display()));
    Ok(summary.exit())
}
