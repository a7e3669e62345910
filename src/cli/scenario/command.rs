//! The subcommands, and how they find scenarios.

use super::{list, show, worker};
use crate::cli::{Console, Failure, OrExit};
use crate::harness::scenario::{SCENARIOS, ScenarioFile, scenarios};
use crate::harness::{project_root, read_gates};
use crate::units::Exit;
use clap::Subcommand;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Experiments that admit or decline an optimisation
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  assay scenario list                 every scenario and its question
  assay scenario run cpu-decode       measure, decide, write a report
  assay scenario lint ./mine.yaml     check a file without measuring")]
pub(in crate::cli) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// List scenarios with their questions
    List(list::Args),
    /// Show what a scenario would measure here and the rule that decides
    Show(show::Args),
    /// Check scenario files without measuring
    Lint(list::LintArgs),
    /// Measure scenarios and decide
    Run(Box<super::run::Args>),
    /// Establish how often the harness errs on this machine
    ErrorRates(super::error_rates::Args),
    /// One arm of a running scenario (started by `run`)
    #[command(hide = true)]
    Worker,
}

/// Runs the subcommand.
pub(in crate::cli) fn run(args: Args, console: &Console) -> Result<Exit, Failure> {
    match args.command {
        Command::List(args) => list::run(&args, console),
        Command::Show(args) => show::run(&args, console),
        Command::Lint(args) => list::lint(&args, console),
        Command::Run(args) => super::run::run(*args, console),
        Command::ErrorRates(args) => super::error_rates::run(args, console),
        Command::Worker => worker::run(),
    }
}

/// The project folder: the nearest one here or above that has scenarios; the current one for
/// files given by path.
pub(super) fn root() -> Result<PathBuf, Failure> {
    let here = std::env::current_dir()?;
    let found = here.ancestors().find(|folder| folder.join(SCENARIOS).is_dir());
    Ok(found.map_or_else(|| here.clone(), PathBuf::from))
}

/// The selected scenarios.
pub(super) fn selected(selection: &[String]) -> Result<Vec<ScenarioFile>, Failure> {
    let files = scenarios(&root()?, selection).map_err(Failure::usage)?;
    if files.is_empty() {
        return Err(Failure::usage(
            "there are no scenarios here; run inside the project or name a file",
        ));
    }
    Ok(files)
}

/// `KEY=VALUE` on the command line.
pub(super) fn key_value(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() && !value.is_empty() => {
            Ok((key.to_owned(), value.to_owned()))
        }
        _ => Err("expected KEY=VALUE, such as model=DIR or workload.decode_tokens=16".to_owned()),
    }
}

/// Checks what files name outside themselves, with these values in place of theirs.
pub(super) fn check_surroundings(
    files: &[ScenarioFile],
    set: &BTreeMap<String, String>,
) -> Result<(), Failure> {
    let project = project_root(&std::env::current_dir()?);
    let gates: Option<Vec<String>> = match &project {
        Some(project) => {
            let gates = read_gates(Some(project), &[], &BTreeMap::new()).or_exit(Exit::Usage)?;
            Some(gates.into_iter().map(|gate| gate.name).collect())
        }
        None => None,
    };
    for file in files {
        file.check_surroundings(gates.as_deref(), set).map_err(Failure::usage)?;
    }
    Ok(())
}
