//! Panics of a library that was given a file nobody vouches for.

use std::any::Any;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};

thread_local! {
    static CATCHING: Cell<bool> = const { Cell::new(false) };
}

/// Runs `f`, whose panic is an error like any other: what `f` changed is thrown away by the caller.
///
/// # Errors
/// The message of the panic.
pub fn caught<T>(f: impl FnOnce() -> T) -> Result<T, String> {
    let outer = CATCHING.replace(true);
    let result = catch_unwind(AssertUnwindSafe(f));
    CATCHING.set(outer);
    result.map_err(|panic| panic_message(panic.as_ref()))
}

/// Whether this thread is inside [`caught`]: a hook has nothing to print then.
pub fn is_catching() -> bool {
    CATCHING.get()
}

/// What a panic said.
pub fn panic_message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|s| (*s).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "panic".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_its_message_and_silence_ends_with_it() {
        assert_eq!(caught(|| 7), Ok(7));
        assert_eq!(caught(|| assert!(!is_catching(), "{} found", 3)), Err("3 found".to_owned()));
        assert!(!is_catching());
    }
}
