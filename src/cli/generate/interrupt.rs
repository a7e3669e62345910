//! Ctrl-C while text is generated.

use crate::cli::Failure;
use crate::units::Exit;
use std::sync::atomic::{AtomicBool, Ordering};

static INTERRUPTED: AtomicBool = AtomicBool::new(false);

/// From here on the first Ctrl-C asks to stop after the current token, the second ends the process.
///
/// # Errors
/// 70 if the system refuses the handler.
pub(in crate::cli) fn listen() -> Result<(), Failure> {
    ctrlc::set_handler(|| {
        if INTERRUPTED.swap(true, Ordering::Relaxed) {
            std::process::exit(i32::from(Exit::Interrupted.code()));
        }
    })
    .map_err(|e| Failure::new(Exit::Internal, format!("cannot listen for Ctrl-C: {e}")))
}

/// Whether Ctrl-C was pressed.
pub(in crate::cli) fn requested() -> bool {
    INTERRUPTED.load(Ordering::Relaxed)
}
