//! `assay report`: render and check.

use super::{Console, Failure, OrExit};
use crate::harness::report::{check_reports, render_report, write_report};
use crate::units::Exit;
use clap::Subcommand;
use std::path::PathBuf;

/// Pages made from records
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  assay report render results/20310509t140359z-cpu-decode
  assay report render results/20310509t140359z-cpu-decode --out reports/cpu-decode
  assay report check")]
pub(super) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Render the page of a run, and the index of committed reports
    #[command(after_help = "\
Examples:
  assay report render results/20310509t140359z-cpu-decode
  assay report render results/20310509t140359z-cpu-decode --out reports/cpu-decode
  assay report render reports/cpu-decode        again, from its record")]
    Render {
        /// A run folder, or a folder that holds a record.json
        #[arg(value_name = "RUN")]
        run: PathBuf,
        /// Write record.json and report.html there, and the index page beside that folder
        #[arg(long, value_name = "DIR")]
        out: Option<PathBuf>,
    },
    /// Render every committed report again and fail on any difference
    #[command(after_help = "\
Examples:
  assay report check
  assay report check --reports ./reports")]
    Check {
        /// The folder of committed reports
        #[arg(long, value_name = "DIR", default_value = "reports")]
        reports: PathBuf,
    },
}

/// Runs the subcommand.
pub(super) fn run(args: Args, console: &Console) -> Result<Exit, Failure> {
    match args.command {
        Command::Render { run, out: None } => {
            let page = write_report(&run).or_exit(Exit::Io)?;
            console.product(&format!("{}\n", page.display()))?;
            Ok(Exit::Success)
        }
        Command::Render { run, out: Some(out) } => {
            for page in render_report(&run, &out).or_exit(Exit::Io)? {
                console.product(&format!("{}\n", page.display()))?;
            }
            Ok(Exit::Success)
        }
        Command::Check { reports } => {
            let checked = check_reports(&reports).or_exit(Exit::Io)?;
            for problem in &checked.problems {
                console.product(&format!("{problem}\n"))?;
            }
            let verdict =
                if checked.problems.is_empty() { "as rendered from its record" } else { "checked" };
            console.note(&format!(
                "{} of {} pages {verdict}",
                checked.pages - checked.problems.len(),
                checked.pages
            ));
            Ok(if checked.problems.is_empty() { Exit::Success } else { Exit::Fail })
        }
    }
}
