//! `assay model verify`.

use super::progress::bar;
use crate::cli::model_args::folder_exists;
use crate::cli::{Console, Failure};
use crate::units::Exit;
use crate::weights::{Check, verify};
use serde_json::json;
use std::path::PathBuf;

const EXAMPLES: &str = "\
Examples:
  assay model verify --model ./SmolLM2-135M-int4 --source ./SmolLM2-135M
  assay model verify --model ./SmolLM2-135M-int4 --json

Exit code 0: everything holds. 1: something does not. 2: nothing is wrong, but without --source the \
weights were not compared with what they were made from.";

/// Arguments of `assay model verify`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Args {
    /// Folder of packed weights
    #[arg(long, value_name = "DIR")]
    model: PathBuf,
    /// Folder that they were packed from: hashed again, and a sample of rows packed again
    #[arg(long, value_name = "DIR")]
    source: Option<PathBuf>,
}

/// Runs `assay model verify`.
pub(super) fn run(args: &Args, console: &Console) -> Result<Exit, Failure> {
    folder_exists(&args.model)?;
    let bar = bar(console, "verifying");
    let report = |done: u64, total: u64| {
        bar.set_length(total);
        bar.set_position(done);
    };
    let found = verify(&args.model, args.source.as_deref(), Some(&report));
    bar.finish_and_clear();
    let found = found?;
    if found.checks.is_empty() {
        return Err(Failure::usage(format!(
            "{}: its weights are not packed; there is no weights.manifest.json",
            args.model.display()
        )));
    }
    let word = |check: &Check| match check.holds {
        Some(true) => "ok",
        Some(false) => "FAILED",
        None => "not checked",
    };
    if console.json() {
        let checks: Vec<_> = found
            .checks
            .iter()
            .map(|c| json!({ "check": c.name, "result": word(c), "detail": c.detail }))
            .collect();
        console.product_json(&json!({ "folder": args.model, "checks": checks }))?;
    } else {
        let lines: Vec<String> = found
            .checks
            .iter()
            .map(|c| format!("{:<12} {}: {}\n", word(c), c.name, c.detail))
            .collect();
        console.product(&lines.concat())?;
    }
    Ok(match (found.failed(), found.complete()) {
        (true, _) => Exit::Fail,
        (false, true) => Exit::Success,
        (false, false) => Exit::Legacy,
    })
}
