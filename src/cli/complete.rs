//! `assay completions`: shell completion scripts.

use super::root::Root;
use super::{Console, Failure};
use crate::units::Exit;
use clap::CommandFactory;
use clap_complete::Shell;

/// Which script to print.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  assay completions bash > ~/.local/share/bash-completion/completions/assay
  assay completions fish > ~/.config/fish/completions/assay.fish")]
pub(super) struct Args {
    /// The shell
    shell: Shell,
}

/// Prints the completion script.
pub(super) fn run(args: Args, console: &Console) -> Result<Exit, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Root::command(), "assay", &mut script);
    console.product(&String::from_utf8_lossy(&script))?;
    Ok(Exit::Success)
}
