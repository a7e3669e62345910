//! `assay worker`: the process that a runner starts to execute trials. Not for people.

use super::{Console, Failure};
use crate::units::Exit;

/// Reads requests on stdin, answers on stdout
#[derive(Debug, clap::Args)]
pub(super) struct Args {}

/// Serves until stdin ends.
pub(super) fn run(_args: Args, _console: &Console) -> Result<Exit, Failure> {
    super::unless_closed(crate::harness::run::serve())?;
    Ok(Exit::Success)
}
