//! `assay capture compare`.

use super::render;
use crate::cli::{Console, Failure};
use crate::harness::capture::{
    Across, Capture, HOW_TO_RECORD, LOGITS, Mode, Walk, compare, first_difference, write_repro,
};
use crate::units::Exit;
use clap::ValueEnum;
use serde_json::json;
use std::path::PathBuf;

const EXAMPLES: &str = "\
Examples:
  assay capture compare a.safetensors b.safetensors
  assay capture compare old.safetensors new.safetensors --across builds
  assay capture compare reference.safetensors f32.safetensors --mode diagnostic
  assay capture compare a.safetensors b.safetensors --first-difference
  assay capture compare a.safetensors b.safetensors --first-difference \\
                        --repro ./repro

Exit codes:
  0  strict: the manifests admit the comparison, all arrays are equal and finite
  1  strict: they do not, or an array differs
  2  legacy: a side has no manifest; the arrays in common are equal
  3  diagnostic: differences are shown, nothing is claimed";

/// Arguments of `assay capture compare`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Args {
    /// The capture compared with, or any safetensors file of arrays with the same names
    #[arg(value_name = "A")]
    left: PathBuf,
    /// The capture compared
    #[arg(value_name = "B")]
    right: PathBuf,
    #[command(flatten)]
    mode: ModeArgs,
    /// Walk the activations in order of execution to the first region, token and element that
    /// differ, and write a folder to make the difference again from
    #[arg(long)]
    first_difference: bool,
    /// That folder
    #[arg(
        long,
        value_name = "DIR",
        default_value = "first-difference",
        requires = "first_difference"
    )]
    repro: PathBuf,
}

/// The flags that say what a comparison is for.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct ModeArgs {
    /// What the comparison is for
    #[arg(long, value_name = "MODE", default_value = "strict")]
    mode: ModeName,
    /// Let one half of provenance differ, and show it: two commits, or two hosts
    #[arg(long, value_name = "WHAT")]
    across: Option<AcrossName>,
    /// Report a difference of placement alone as a scoped exception
    #[arg(long)]
    deployment_scoped: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum ModeName {
    /// Two results claim to be the same
    Strict,
    /// A deliberate difference is looked at; never a pass
    Diagnostic,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum AcrossName {
    /// The build may differ
    Builds,
    /// The machine may differ
    Machines,
}

impl ModeArgs {
    /// The mode.
    ///
    /// # Errors
    /// An exception was asked for in diagnostic mode, which needs none.
    pub(crate) fn mode(&self) -> Result<Mode, Failure> {
        match self.mode {
            ModeName::Diagnostic if self.across.is_some() || self.deployment_scoped => {
                Err(Failure::usage(
                    "--across and --deployment-scoped are exceptions of --mode strict; diagnostic \
                     mode shows every difference without them",
                ))
            }
            ModeName::Diagnostic => Ok(Mode::Diagnostic),
            ModeName::Strict => Ok(Mode::Strict {
                across: self.across.map(|a| match a {
                    AcrossName::Builds => Across::Builds,
                    AcrossName::Machines => Across::Machines,
                }),
                deployment_scoped: self.deployment_scoped,
            }),
        }
    }
}

/// Runs `assay capture compare`.
pub(super) fn run(args: &Args, console: &Console) -> Result<Exit, Failure> {
    let mode = args.mode.mode()?;
    let (left, right) = (Capture::open(&args.left)?, Capture::open(&args.right)?);
    let comparison = compare(&left, &right, mode);
    let walk = match args.first_difference {
        true => Some(first_difference(&left, &right).map_err(Failure::usage)?),
        false => None,
    };
    if console.json() {
        let mut value = comparison.to_json();
        value["left"] = json!(args.left);
        value["right"] = json!(args.right);
        if let Some(walk) = &walk {
            value["first_difference"] = match walk {
                Walk::Different(found) => json!(found),
                Walk::Same { .. } => json!(null),
            };
        }
        console.product_json(&value)?;
    } else {
        let names = [args.left.display().to_string(), args.right.display().to_string()];
        console.product(&render::comparison(&comparison, &names, walk.as_ref(), console))?;
    }
    if let Some(Walk::Different(found)) = &walk {
        write_repro(&left, &right, found, &args.repro)?;
        console.note(&format!(
            "wrote {}; make it again with: sh {} MODEL",
            args.repro.display(),
            args.repro.join("reproduce.sh").display()
        ));
        let taps = [&left, &right].map(|c| c.info.as_ref().is_some_and(|i| !i.taps.is_empty()));
        if found.activation == LOGITS && taps.contains(&false) {
            console.note(&format!(
                "the captures share no activations, so the walk could only look at logits; {HOW_TO_RECORD}"
            ));
        } else if found.regions.len() > 1 {
            console.note("`--tap all` on both sides narrows it down to one region");
        }
    }
    Ok(comparison.exit())
}
