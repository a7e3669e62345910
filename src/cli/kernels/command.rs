//! The subcommands.

use super::{build, list, measure, probe};
use crate::cli::{Console, Failure};
use crate::units::Exit;

/// What to do with the kernels.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  assay kernels list                      sources, kernels, where they are built
  assay kernels build                     compile them for every architecture
  assay kernels build --arch sm_90a -j 4  for one architecture, four at a time
  assay kernels probe                     ask the GPU of this machine")]
pub(in crate::cli) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// List kernel sources and the kernels in them
    List(list::Args),
    /// Compile every kernel for the listed architectures; needs no GPU
    Build(build::Args),
    /// Ask a device which bits it guarantees and what invariant products cost
    Probe(probe::Args),
    /// Time prefill and decode of a model with synthetic weights
    Measure(measure::Args),
}

/// Runs a subcommand.
pub(in crate::cli) fn run(args: Args, console: &Console) -> Result<Exit, Failure> {
    match args.command {
        Command::List(args) => list::run(&args, console),
        Command::Build(args) => build::run(&args, console),
        Command::Probe(args) => probe::run(&args, console),
        Command::Measure(args) => measure::run(&args, console),
    }
}
