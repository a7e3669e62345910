//! The verbs of `assay manifest`.

use super::{check, compare, show};
use crate::cli::{Console, Failure};
use crate::units::Exit;
use clap::Subcommand;

const EXAMPLES: &str = "\
Examples:
  assay manifest show --model ./SmolLM2-135M --policy f32
  assay manifest show capture.safetensors
  assay manifest check run.json#arms.baseline
  assay manifest compare a.safetensors b.safetensors --mode diagnostic";

/// Arguments of `assay manifest`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES, subcommand_required = true, arg_required_else_help = true)]
pub(crate) struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Print the manifest of a file, or of executing a model here
    Show(show::Args),
    /// Derive every id again and list the facts that are not established
    Check(check::Args),
    /// Compare two manifests field by field, and say whether results under them compare
    Compare(compare::Args),
}

/// Runs `assay manifest`.
pub(crate) fn run(args: Args, console: &Console) -> Result<Exit, Failure> {
    match args.verb {
        Verb::Show(args) => show::run(&args, console),
        Verb::Check(args) => check::run(&args, console),
        Verb::Compare(args) => compare::run(&args, console),
    }
}
