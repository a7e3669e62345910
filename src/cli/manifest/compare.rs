//! `assay manifest compare`.

use super::source;
use crate::cli::capture::{ModeArgs, difference};
use crate::cli::{Console, Failure, Tone};
use crate::engine::manifest::compare;
use crate::harness::capture::{Admission, admit};
use crate::units::Exit;

const EXAMPLES: &str = "\
Examples:
  assay manifest compare a.safetensors b.safetensors
  assay manifest compare a.json b.json --across machines
  assay manifest compare run.json#arms.baseline run.json#arms.candidate \\
                         --mode diagnostic

Exit codes: 0 results under the two manifests may be compared, 1 they may not, 3 diagnostic.";

/// Arguments of `assay manifest compare`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Args {
    #[arg(value_name = "A", help = source::HELP)]
    left: String,
    #[arg(value_name = "B", help = "As A")]
    right: String,
    #[command(flatten)]
    mode: ModeArgs,
}

/// Runs `assay manifest compare`.
pub(super) fn run(args: &Args, console: &Console) -> Result<Exit, Failure> {
    let mode = args.mode.mode()?;
    let found = compare(&source::read(&args.left)?, &source::read(&args.right)?);
    let admission = admit(&found, mode);
    let exit = match admission {
        Admission::Admitted { .. } | Admission::Scoped { .. } => Exit::Success,
        Admission::Refused { .. } => Exit::Fail,
        Admission::Diagnostic => Exit::Diagnostic,
    };
    if console.json() {
        let mut value = found.to_json();
        value["mode"] = mode.describe().into();
        value["admission"] = admission.word().into();
        value["notes"] = admission.notes().into();
        value["exit"] = exit.code().into();
        console.product_json(&value)?;
    } else {
        let mut text = difference(&found, console);
        for note in admission.notes() {
            text += &format!("{}: {note}\n", admission.word());
        }
        let tone = match exit {
            Exit::Success => Tone::Good,
            Exit::Fail => Tone::Bad,
            _ => Tone::Caution,
        };
        text += &format!("\n{}\n", console.paint(admission.word(), tone));
        console.product(&text)?;
    }
    Ok(exit)
}
