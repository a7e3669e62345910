//! `assay kernels list`.

use crate::backend::cuda::{KernelSource, catalogue, kernel_names};
use crate::cli::{Console, Failure};
use crate::units::Exit;
use serde_json::json;
use std::fmt::Write as _;

/// How to list.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  assay kernels list
  assay kernels list --markdown > kernels/README.md   regenerate the catalogue
  assay kernels list --json")]
pub(super) struct Args {
    /// Print the catalogue as it is kept in kernels/README.md
    #[arg(long)]
    markdown: bool,
}

/// Prints the list.
pub(super) fn run(args: &Args, console: &Console) -> Result<Exit, Failure> {
    if args.markdown {
        console.product(&catalogue())?;
        return Ok(Exit::Success);
    }
    if console.json() {
        let sources: Vec<_> = KernelSource::all()
            .iter()
            .map(|source| {
                let kernels: Vec<_> = kernel_names(source)
                    .into_iter()
                    .map(|(name, hopper)| json!({ "name": name, "needs_wgmma": hopper }))
                    .collect();
                json!({
                    "source": source.name,
                    "purpose": source.header("Purpose"),
                    "digest": source.digest().to_string(),
                    "kernels": kernels,
                })
            })
            .collect();
        console.product_json(&sources)?;
        return Ok(Exit::Success);
    }
    let mut text = String::new();
    for source in KernelSource::all() {
        let _ = writeln!(
            text,
            "{}.cu  {}\n  {}",
            source.name,
            source.digest().short(),
            source.header("Purpose").unwrap_or_default()
        );
        for (name, hopper) in kernel_names(source) {
            let built = if hopper { "  sm_90a only" } else { "" };
            let _ = writeln!(text, "    {name}{built}");
        }
    }
    console.product(&text)?;
    Ok(Exit::Success)
}
