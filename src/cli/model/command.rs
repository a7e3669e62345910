//! The verbs of `assay model`.

use super::{describe, quantize, synth, verify};
use crate::cli::model_args::folder_exists;
use crate::cli::{Console, Failure};
use crate::descriptor::from_dir;
use crate::units::Exit;
use clap::Subcommand;
use std::path::PathBuf;

const EXAMPLES: &str = "\
Examples:
  assay model describe ./SmolLM2-135M
  assay model describe --descriptor descriptors/qwen38-27b.json
  assay model descriptor ./SmolLM2-135M > smollm2.json
  assay model synth --descriptor descriptors/tiny-llama.json --out ./tiny
  assay model quantize --model ./SmolLM2-135M --roles ffn --out ./int4";

/// Arguments of `assay model`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES, subcommand_required = true, arg_required_else_help = true)]
pub(crate) struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Dimensions, layers, sizes and logical weights of a model; needs no weights
    Describe(describe::Args),
    /// Print the canonical descriptor that a checkpoint's config.json gives
    Descriptor(DescriptorArgs),
    /// Write a checkpoint of synthetic weights
    Synth(synth::Args),
    /// Pack weights into four bits
    Quantize(quantize::Args),
    /// Derive again what a folder of packed weights says about itself
    Verify(verify::Args),
}

const DESCRIPTOR_EXAMPLES: &str = "\
Examples:
  assay model descriptor ./SmolLM2-135M > smollm2.json
  assay generate --model ./SmolLM2-135M --descriptor smollm2.json -p \"Hello\"";

#[derive(Debug, clap::Args)]
#[command(after_help = DESCRIPTOR_EXAMPLES)]
struct DescriptorArgs {
    /// Hugging Face folder; config.json is enough
    #[arg(value_name = "DIR")]
    dir: PathBuf,
}

/// Runs `assay model`.
pub(crate) fn run(args: Args, console: &Console) -> Result<Exit, Failure> {
    match args.verb {
        Verb::Describe(args) => describe::run(&args, console),
        Verb::Synth(args) => synth::run(&args, console),
        Verb::Quantize(args) => quantize::run(&args, console),
        Verb::Verify(args) => verify::run(&args, console),
        Verb::Descriptor(args) => {
            folder_exists(&args.dir)?;
            console.product(&from_dir(&args.dir)?.to_json())?;
            Ok(Exit::Success)
        }
    }
}
