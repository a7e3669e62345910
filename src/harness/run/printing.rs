//! Printing that panics where it fails, as that of libtest-mimic does.

use std::io::{self, Write as _};
use std::panic::{AssertUnwindSafe, PanicHookInfo, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Calls `print`; where its printer panicked because stdout took nothing any more, says so.
///
/// # Errors
/// stdout is full, or whatever else was wrong with it. A pipe that its reader closed is none: whoever
/// closed it has seen enough.
///
/// # Panics
/// As `print` does for any other reason.
pub(super) fn printed(print: impl FnOnce()) -> io::Result<()> {
    let by_printer = Arc::new(AtomicBool::new(false));
    let seen = by_printer.clone();
    let caller = std::thread::current().id();
    let hook: Arc<dyn Fn(&PanicHookInfo<'_>) + Send + Sync> = Arc::from(std::panic::take_hook());
    let usual = hook.clone();
    std::panic::set_hook(Box::new(move |info| {
        if std::thread::current().id() == caller && is_of_printer(info) {
            seen.store(true, Ordering::SeqCst);
        } else {
            usual(info);
        }
    }));
    let result = catch_unwind(AssertUnwindSafe(print));
    drop(std::panic::take_hook());
    std::panic::set_hook(Box::new(move |info| hook(info)));
    match result {
        Ok(()) => Ok(()),
        Err(_) if by_printer.load(Ordering::SeqCst) => why(),
        Err(panic) => resume_unwind(panic),
    }
}

/// Whether a panic came out of libtest-mimic, which unwraps the results of its writes; its trials'
/// own panics it catches itself.
fn is_of_printer(info: &PanicHookInfo<'_>) -> bool {
    info.location().is_some_and(|l| l.file().contains("libtest-mimic"))
}

/// What is wrong with stdout: the next write meets the same error.
fn why() -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    match stdout.write_all(b"\n").and_then(|()| stdout.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        Err(error) => Err(error),
        Ok(()) => Err(io::Error::other("a part of the list of trials was not printed")),
    }
}
