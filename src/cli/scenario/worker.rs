//! The worker side of `assay scenario run`: requests on stdin, replies on stdout.

use super::super::Failure;
use crate::harness::scenario::serve;
use crate::units::Exit;
use std::io::{stdin, stdout};

/// Serves one arm until the runner closes the pipe.
pub(super) fn run() -> Result<Exit, Failure> {
    crate::cli::unless_closed(serve(stdin().lock(), stdout().lock()))?;
    Ok(Exit::Success)
}
