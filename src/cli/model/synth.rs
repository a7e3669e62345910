//! `assay model synth`.

use crate::cli::model_args::read_descriptor;
use crate::cli::table::bytes;
use crate::cli::{Console, Failure};
use crate::descriptor::{Descriptor, from_dir};
use crate::units::{Exit, Memory};
use crate::weights::{WriteOptions, synth, write_weights};
use serde_json::json;
use std::path::{Path, PathBuf};

const EXAMPLES: &str = "\
Examples:
  assay model synth --descriptor descriptors/smollm2-135m.json --out ./synthetic
  assay model synth --descriptor mine.json --config ./my-model --seed 7 \\
                    --out ./synthetic

The same descriptor and seed give the same bits on every machine. The values have the scale of \
trained weights, but nothing was learnt: use them for speed and memory, never for quality.";

/// Files that belong to a tokeniser.
const TOKENIZER_FILES: [&str; 5] = [
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "chat_template.jinja",
    "chat_template.json",
];

/// Arguments of `assay model synth`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Args {
    /// Descriptor of the model
    #[arg(long, value_name = "FILE")]
    descriptor: PathBuf,
    /// Seed of the generator, 0 … 2^64 − 1
    #[arg(long, value_name = "N")]
    seed: u64,
    /// Folder to write; created if need be, must not hold a checkpoint
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// Folder with the config.json to write beside the weights; by default configs/NAME beside the
    /// descriptor file NAME.json
    #[arg(long, value_name = "DIR")]
    config: Option<PathBuf>,
    /// Folder whose tokeniser files to copy
    #[arg(long, value_name = "DIR")]
    tokenizer: Option<PathBuf>,
}

/// Runs `assay model synth`.
pub(super) fn run(args: &Args, console: &Console) -> Result<Exit, Failure> {
    let descriptor = read_descriptor(&args.descriptor)?;
    let config = config_of(args, &descriptor)?;
    if let Some(folder) = &args.tokenizer {
        let file = folder.join(TOKENIZER_FILES[0]);
        if !file.is_file() {
            return Err(Failure::new(Exit::Io, format!("{}: no such file", file.display())));
        }
    }
    let needed_bytes = descriptor.weights_bf16_bytes();
    if let Some(usable_bytes) = Memory::probe().usable_bytes().filter(|u| *u < needed_bytes) {
        return Err(Failure::new(
            Exit::Io,
            format!(
                "{}: its weights need {} of memory, {} can be used",
                args.descriptor.display(),
                bytes(needed_bytes),
                bytes(usable_bytes)
            ),
        ));
    }
    console.note(&format!(
        "generating {} of BF16 weights from seed {}",
        bytes(needed_bytes),
        args.seed
    ));
    let weights = synth(&descriptor, args.seed);
    let mut files = write_weights(&args.out, &descriptor, &weights, &WriteOptions::default())
        .map_err(|e| {
            let exit = if e.is_io() { Exit::Io } else { Exit::Usage };
            Failure::new(exit, e)
        })?;
    files.extend(copy_present(&config, &["config.json", "generation_config.json"], &args.out)?);
    if let Some(folder) = &args.tokenizer {
        files.extend(copy_present(folder, &TOKENIZER_FILES, &args.out)?);
    }
    if console.json() {
        console.product_json(&json!({
            "folder": args.out,
            "files": files,
            "seed": args.seed,
            "parameters": descriptor.parameters(),
            "semantic_id": descriptor.semantic().digest().to_string(),
        }))?;
    } else {
        let lines: Vec<String> = files.iter().map(|f| format!("{}\n", f.display())).collect();
        console.product(&lines.concat())?;
    }
    Ok(Exit::Success)
}

/// The folder whose config derives to the descriptor, so that what is written loads back.
fn config_of(args: &Args, descriptor: &Descriptor) -> Result<PathBuf, Failure> {
    let beside = || {
        let parent = args.descriptor.parent().unwrap_or(Path::new(""));
        parent.join("configs").join(args.descriptor.file_stem().unwrap_or_default())
    };
    let folder = args.config.clone().unwrap_or_else(beside);
    if args.config.is_none() && !folder.join("config.json").is_file() {
        return Err(Failure::usage(format!(
            "{} has no config.json in {}; name its folder with --config",
            args.descriptor.display(),
            folder.display()
        )));
    }
    let derived = from_dir(&folder)?;
    match descriptor.differences(&derived).first() {
        None => Ok(folder),
        Some(first) => Err(Failure::usage(format!(
            "{} does not describe {}: {first}",
            folder.join("config.json").display(),
            args.descriptor.display()
        ))),
    }
}

/// Copies the files that are there.
fn copy_present(from: &Path, names: &[&str], to: &Path) -> Result<Vec<PathBuf>, Failure> {
    let mut copied = Vec::new();
    for name in names {
        let (source, target) = (from.join(name), to.join(name));
        if source.is_file() {
            let error = |e| Failure::new(Exit::Io, format!("{}: {e}", target.display()));
            std::fs::copy(&source, &target).map_err(error)?;
            copied.push(target);
        }
    }
    Ok(copied)
}
