//! `assay manifest show`.

use super::source;
use crate::cli::engine_args::EngineArgs;
use crate::cli::loading::load_engine;
use crate::cli::model_args::{DescriptorArgs, folder_exists};
use crate::cli::table::columns;
use crate::cli::{Console, Failure, Tone};
use crate::engine::manifest::{Execution, Manifest, leaves};
use crate::units::{Canonical, Exit};
use crate::weights::Model;
use std::num::NonZeroUsize;
use std::path::PathBuf;

const EXAMPLES: &str = "\
Examples:
  assay manifest show capture.safetensors
  assay manifest show --model ./SmolLM2-135M --policy f32
  assay manifest show capture.safetensors --json | jq .numerical_policy.fields";

/// Arguments of `assay manifest show`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Args {
    #[arg(value_name = "FILE", help = source::HELP, required_unless_present = "model",
        conflicts_with = "model")]
    file: Option<String>,
    /// Hugging Face folder: the manifest of executing this model here, now
    #[arg(long, value_name = "DIR")]
    model: Option<PathBuf>,
    #[command(flatten)]
    overrides: DescriptorArgs,
    #[command(flatten)]
    engine: EngineArgs,
}

/// Runs `assay manifest show`.
pub(super) fn run(args: &Args, console: &Console) -> Result<Exit, Failure> {
    let manifest = match (&args.file, &args.model) {
        (Some(file), _) => source::read(file)?,
        (None, Some(folder)) => of_model(folder, args, console)?,
        (None, None) => return Err(Failure::usage("name a file or give --model DIR")),
    };
    if console.json() {
        console.product_json(&manifest.to_json())?;
    } else {
        console.product(&text(&manifest, console))?;
    }
    Ok(Exit::Success)
}

fn of_model(folder: &PathBuf, args: &Args, console: &Console) -> Result<Manifest, Failure> {
    let options = args.engine.options()?;
    folder_exists(folder)?;
    let model = match &args.overrides.descriptor {
        Some(_) => Model::with_descriptor(folder, args.overrides.descriptor_of(folder)?)?,
        None => Model::open(folder)?,
    };
    let (engine, weights) = load_engine(&model, &options, console)?;
    args.overrides.check(folder, engine.descriptor(), console)?;
    let threads = options
        .threads
        .unwrap_or_else(|| std::thread::available_parallelism().map_or(1, NonZeroUsize::get));
    Ok(Execution::of(&engine, weights.source(), Some(&model.checkpoint), threads).manifest())
}

fn text(manifest: &Manifest, console: &Console) -> String {
    let mut text = String::new();
    for (i, block) in manifest.blocks().iter().enumerate() {
        if i > 0 {
            text.push('\n');
        }
        let name = console.paint(block.name.as_str(), Tone::Strong);
        text += &format!("{name}  {}\n", block.id());
        let rows: Vec<Vec<String>> = leaves(&block.fields)
            .into_iter()
            .map(|(path, value)| {
                let value = match value {
                    Canonical::Text(text) => text,
                    other => other.encode(),
                };
                vec![format!("  {path}"), value]
            })
            .collect();
        text += &columns(&rows, &[]);
    }
    text
}
