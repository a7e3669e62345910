//! `assay gates lint`: every mistake in every file, nothing is run.

use super::table::count;
use super::{Console, Failure, Selection, list};
use crate::cli::OrExit;
use crate::units::Exit;

/// Which gates to check
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  assay gates lint                  every gate of the project
  assay gates lint ./mine.yaml")]
pub(super) struct Args {
    #[command(flatten)]
    selection: Selection,
}

/// Plans the short and the long run of the files and reports what cannot be.
pub(super) fn run(args: &Args, console: &Console) -> Result<Exit, Failure> {
    let mut trials = [0, 0];
    let mut gates = 0;
    for (at, long) in [false, true].into_iter().enumerate() {
        let selection = Selection { long, ..args.selection.clone() };
        let launched = list::launch(&selection)?.plan().or_exit(Exit::Usage)?;
        gates = launched.plan.gates.len() as u64;
        trials[at] = launched.plan.trials.len() as u64;
    }
    console.product(&format!(
        "{} and {} ({} with --long) are well-formed\n",
        count(gates, "gate"),
        count(trials[0], "trial"),
        trials[1]
    ))?;
    Ok(Exit::Success)
}
