//! The subcommands; rendering and checking are short enough to stand here.

use super::{compare, merge};
use crate::cli::{Console, Failure, OrExit};
use crate::harness::report::{check_reports, junit_of, markdown_of, render_report, write_report};
use crate::units::{Exit, write_whole};
use clap::Subcommand;
use std::path::PathBuf;

/// Pages made from records
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  assay report render results/20310509t140359z-1f3a
  assay report render results/20310509t140359z-1f3a --out reports/cpu-decode
  assay report check
  assay report compare results/OLD results/NEW --out comparison.html
  assay report merge shard-1/* shard-2/* --junit gates.xml")]
pub(in crate::cli) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Render the page of a run, and the index of committed reports
    #[command(after_help = "\
Examples:
  assay report render results/20310509t140359z-1f3a
  assay report render results/20310509t140359z-1f3a --out reports/cpu-decode
  assay report render reports/cpu-decode        again, from its record")]
    Render {
        /// A run folder, or a folder that holds a record.json
        #[arg(value_name = "RUN")]
        run: PathBuf,
        /// Write record.json and report.html there, and the index page beside that folder
        #[arg(long, value_name = "DIR")]
        out: Option<PathBuf>,
        /// Write a JUnit XML file for CI
        #[arg(long, value_name = "FILE")]
        junit: Option<PathBuf>,
        /// Write a Markdown summary for a pull request or a CI step
        #[arg(long, value_name = "FILE")]
        markdown: Option<PathBuf>,
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
    /// Align two runs: what got worse, what got better, what cannot be compared
    Compare(compare::Args),
    /// Join gate runs: the parts of a partition, or several machines
    Merge(merge::Args),
}

/// Runs the subcommand.
pub(in crate::cli) fn run(args: Args, console: &Console) -> Result<Exit, Failure> {
    match args.command {
        Command::Compare(args) => compare::run(&args, console),
        Command::Merge(args) => merge::run(&args, console),
        Command::Render { run, out, junit, markdown } => {
            let pages = match out {
                None => vec![write_report(&run).or_exit(Exit::Io)?],
                Some(out) => render_report(&run, &out).or_exit(Exit::Io)?,
            };
            for page in pages {
                console.product(&format!("{}\n", page.display()))?;
            }
            for (file, text) in [(junit, junit_of(&run)), (markdown, markdown_of(&run))] {
                let Some(file) = file else { continue };
                write_whole(&file, text.or_exit(Exit::Io)?)
                    .or_exit_with(Exit::Io, || format!("cannot write {}", file.display()))?;
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
