//! Numbers of things on the command line.

use crate::backend::cpu::THREADS_LIMIT;
use std::num::NonZeroUsize;

/// A number of things of which there is at least one.
pub(crate) fn count(text: &str) -> Result<NonZeroUsize, String> {
    text.parse().map_err(|_| format!("expected a whole number from 1 on, found `{text}`"))
}

/// A number of things of which there may be none.
pub(crate) fn number(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| format!("expected a whole number from 0 on, found `{text}`"))
}

/// A number of tokens, none included.
pub(crate) fn token_count(text: &str) -> Result<usize, String> {
    let expected = "expected a whole number of tokens, such as 256";
    text.parse().map_err(|_| format!("{expected}, found `{text}`"))
}

/// The number of a device.
pub(crate) fn ordinal(text: &str) -> Result<usize, String> {
    text.parse().map_err(|_| format!("expected the number of a device, 0 or more, found `{text}`"))
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
        assert_eq!((number("0"), number("7")), (Ok(0), Ok(7)));
        assert_eq!(token_count("0"), Ok(0));
        for bad in ["-1", "", "many", "1.0", "18446744073709551616"] {
            let error = number(bad).unwrap_err();
            assert_eq!(error, format!("expected a whole number from 0 on, found `{bad}`"));
            let error = token_count(bad).unwrap_err();
            assert!(error.ends_with(&format!("such as 256, found `{bad}`")), "{error}");
        }
        assert_eq!(ordinal("0"), Ok(0));
        for bad in ["-1", "", "a", "1.0"] {
            let error = ordinal(bad).unwrap_err();
            assert_eq!(error, format!("expected the number of a device, 0 or more, found `{bad}`"));
        }
        assert_eq!((threads("1"), threads("1024")), (Ok(1), Ok(1024)));
        for bad in ["0", "1025", "4294967296", "-1", "all"] {
            let error = threads(bad).unwrap_err();
            assert_eq!(error, format!("expected 1 to 1024 threads, found `{bad}`"));
        }
    }
}
