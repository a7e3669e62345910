//! `assay manifest check`.

use super::source;
use crate::cli::table::columns;
use crate::cli::{Console, Failure, Tone};
use crate::harness::independent::derive_ids;
use crate::units::Exit;
use serde_json::json;

const EXAMPLES: &str = "\
Examples:
  assay manifest check capture.safetensors
  assay manifest check manifest.json --json

Exit code 1: an id is not that of its fields. Facts that are not established are listed and do not \
fail the check; a strict comparison refuses them.";

/// Arguments of `assay manifest check`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Args {
    #[arg(value_name = "FILE", help = source::HELP)]
    file: String,
}

/// Runs `assay manifest check`.
pub(super) fn run(args: &Args, console: &Console) -> Result<Exit, Failure> {
    // Reading derives every id; deriving them a second time, in another way, catches what both the
    // writer and the reader would get wrong alike.
    let manifest = source::read(&args.file)?;
    let ids = derive_ids(&manifest.to_json().to_string())
        .map_err(|e| Failure::new(Exit::Fail, format!("{}: {e}", args.file)))?;
    let wrong: Vec<&String> = ids.iter().filter(|(_, (s, d))| s != d).map(|(k, _)| k).collect();
    let open = manifest.unestablished();
    if console.json() {
        let open: Vec<String> =
            open.iter().map(|(block, path)| format!("{block}.{path}")).collect();
        console.product_json(&json!({
            "ids": manifest.ids(),
            "wrong": wrong,
            "unestablished": open,
        }))?;
    } else {
        let rows: Vec<Vec<String>> = manifest
            .blocks()
            .iter()
            .map(|b| {
                let right = !wrong.contains(&&b.name.id_key());
                let state = if right { "derived" } else { "WRONG" };
                vec![b.name.to_string(), b.id().to_string(), state.to_owned()]
            })
            .collect();
        let mut text = columns(&rows, &[]);
        for (block, path) in &open {
            let line = format!("not established: {block} {path}\n");
            text += &console.paint(&line, Tone::Caution);
        }
        console.product(&text)?;
    }
    Ok(if wrong.is_empty() { Exit::Success } else { Exit::Fail })
}
