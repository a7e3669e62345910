//! The subcommands, and the selection of gates that most of them take.

use super::{lint, list, mutate, show};
use crate::cli::{Console, Failure, set_values};
use crate::harness::{Pattern, PlanError, project_root};
use crate::units::Exit;
use clap::Subcommand;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Claims about the engine and the runs that test them
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  assay gates list                  every gate, its trials, what cannot run here
  assay gates show NAME             one gate: the claim, its trials by name
  assay gates run all               run everything this machine can test
  assay gates run tag:long --long   everything a short run leaves out
  assay gates lint ./mine.yaml      check a file without running it")]
pub(in crate::cli) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// List gates with the number of their trials
    List(list::Args),
    /// Show one gate: the claim, its trials, what cannot run here
    Show(show::Args),
    /// Check gate files without running them
    Lint(lint::Args),
    /// Run gates and record the result
    Run(Box<super::run::Args>),
    /// Plant defects and see which gates notice
    Mutate(mutate::Args),
}

/// Runs the subcommand.
pub(in crate::cli) fn run(args: Args, console: &Console) -> Result<Exit, Failure> {
    match args.command {
        Command::List(args) => list::run(args, console),
        Command::Show(args) => show::run(args, console),
        Command::Lint(args) => lint::run(&args, console),
        Command::Run(args) => super::run::run(*args, console),
        Command::Mutate(args) => mutate::run(&args, console),
    }
}

/// Which gates, for every subcommand that takes them.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct Selection {
    /// `all`, a name, a glob (`*-invariance`), `tag:NAME`, a trial or glob of trials
    /// (`NAME/cpu/f32/*`), or a file (`./mine.yaml`) [default: all]
    #[arg(value_name = "GATE")]
    pub(super) gates: Vec<String>,
    /// Give or replace a key of the gates selected, such as the folder of a model
    #[arg(long = "set", value_name = "KEY=VALUE", value_parser = key_value)]
    pub(super) set: Vec<(String, String)>,
    /// Everything, where a gate tagged `long` otherwise runs a fixed small part
    #[arg(long)]
    pub(super) long: bool,
}

impl Selection {
    /// Whether any gate was named.
    pub(super) fn is_named(&self) -> bool {
        !self.gates.is_empty()
    }

    /// The gates named; all where none is.
    pub(super) fn gates(&self) -> Vec<String> {
        if self.is_named() { self.gates.clone() } else { vec!["all".to_owned()] }
    }

    /// Values to set. One that names an existing file or folder means that one, wherever the gate
    /// file lies; a number is a number, whatever lies there.
    ///
    /// # Errors
    /// A key that is given twice.
    pub(super) fn set(&self) -> Result<BTreeMap<String, String>, Failure> {
        let absolute = |value: String| {
            let path = Path::new(&value);
            let named = path.exists() && value.parse::<f64>().is_err();
            let found = named.then(|| std::path::absolute(path).ok()).flatten();
            found.map_or(value, |p| p.display().to_string())
        };
        let set = set_values(&self.set)?;
        Ok(set.into_iter().map(|(key, value)| (key, absolute(value))).collect())
    }

    /// The project folder, needed unless all that is selected are files.
    pub(super) fn root(&self) -> Result<Option<PathBuf>, Failure> {
        let here = std::env::current_dir()?;
        let is_file = |word: &String| matches!(Pattern::parse(word), Pattern::File(_));
        let only_files = self.gates().iter().all(is_file);
        match project_root(&here) {
            None if !only_files => Err(Failure::usage(PlanError::NoProject(here))),
            root => Ok(root),
        }
    }
}

fn key_value(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err("expected KEY=VALUE".to_owned()),
    }
}
