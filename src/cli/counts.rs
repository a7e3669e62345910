//! Numbers of things on the command line.

use crate::backend::cpu::THREADS_LIMIT;
use std::num::NonZeroUsize;

/// A number of things of which there is at least one.
pub(crate) fn count(text: &str) -> Result<NonZeroUsize, String> {
    text.parse().map_err(|_| format!("expected a whole number from 1 on, found `{text}`"))
}

/// A number of worker threads.
pub(crate) fn threads(text: &str) -> Result<usize, String> {
    let threads = text.parse().ok().filter(|n| (1..=THREADS_LIMIT).contains(n));
    threads.ok_or_else(|| format!("expected 1 to {THREADS_LIMIT} threads, found `{text}`"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_outside_its_range_is_named_with_the_range() {
        assert_eq!(count("3").map(NonZeroUsize::get), Ok(3));
        for bad in ["0", "-1", "1.5", "", "99999999999999999999999"] {
            let error = count(bad).unwrap_err();
            assert_eq!(error, format!("expected a whole number from 1 on, found `{bad}`"));
        }
        assert_eq!((threads("1"), threads("1024")), (Ok(1), Ok(1024)));
        for bad in ["0", "1025", "4294967296", "-1", "all"] {
            let error = threads(bad).unwrap_err();
            assert_eq!(error, format!("expected 1 to 1024 threads, found `{bad}`"));
        }
    }
}
