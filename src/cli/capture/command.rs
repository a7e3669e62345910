//! The verbs of `assay capture`.

use super::{compare, record};
use crate::cli::{Console, Failure};
use crate::units::Exit;
use clap::Subcommand;

const EXAMPLES: &str = "\
Examples:
  assay capture record --model ./SmolLM2-135M --prompts prompts.json \\
                       --greedy 32 --all-positions --out a.safetensors
  assay capture compare a.safetensors b.safetensors
  assay capture compare a.safetensors b.safetensors --across builds";

/// Arguments of `assay capture`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES, subcommand_required = true, arg_required_else_help = true)]
pub(crate) struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Record logits, greedy tokens, activations and states of fixed prompts, with the manifest
    Record(record::Args),
    /// Compare two captures: first what their manifests admit, then every array
    Compare(compare::Args),
}

/// Runs `assay capture`.
pub(crate) fn run(args: Args, console: &Console) -> Result<Exit, Failure> {
    match args.verb {
        Verb::Record(args) => record::run(&args, console),
        Verb::Compare(args) => compare::run(&args, console),
    }
}
