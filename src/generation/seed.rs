//! The seed of a request's random numbers.

use std::fmt;
use std::str::FromStr;

/// A seed in [0, 2^64 − 1]; the same seed replays the same tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Seed(pub u64);

/// Why a seed was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SeedError {
    #[error(
        "seed `{0}` is not a plain decimal number; expected 0 to 18446744073709551615 (2^64 - 1)"
    )]
    NotDecimal(String),
    #[error("seed {0} is out of range; expected 0 to 18446744073709551615 (2^64 - 1)")]
    OutOfRange(String),
    #[error("the operating system gave no random seed: {0}; give one with --seed")]
    NoEntropy(String),
}

impl Seed {
    /// One seed drawn from the operating system.
    ///
    /// # Errors
    /// [`SeedError::NoEntropy`].
    pub fn from_os() -> Result<Seed, SeedError> {
        getrandom::u64().map(Seed).map_err(|e| SeedError::NoEntropy(e.to_string()))
    }
}

impl FromStr for Seed {
    type Err = SeedError;

    /// Decimal digits and nothing else, exactly: no sign, no exponent, never through a float.
    fn from_str(text: &str) -> Result<Seed, SeedError> {
        let digits = text.strip_prefix('-').unwrap_or(text);
        if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
            return Err(SeedError::NotDecimal(text.into()));
        }
        text.parse().map(Seed).map_err(|_| SeedError::OutOfRange(text.into()))
    }
}

impl fmt::Display for Seed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_u64_is_exact() {
        for seed in [0, 1, (1 << 53) + 1, i64::MAX as u64 + 1, u64::MAX] {
            assert_eq!(seed.to_string().parse::<Seed>(), Ok(Seed(seed)));
        }
        assert_eq!("007".parse::<Seed>(), Ok(Seed(7)), "decimal, not octal");
    }

    #[test]
    fn refused_texts() {
        for text in ["-1", "18446744073709551616", "99999999999999999999999"] {
            let error = text.parse::<Seed>().unwrap_err().to_string();
            assert!(error.contains("out of range"), "{error}");
        }
        for text in ["", "-", "1e3", "1.0", "+1", "0x10", "1_000", " 1", "seven", "١"] {
            let error = text.parse::<Seed>().unwrap_err().to_string();
            assert!(error.contains("not a plain decimal"), "{error}");
        }
    }

    #[test]
    fn the_system_gives_different_seeds() {
        assert_ne!(Seed::from_os().unwrap(), Seed::from_os().unwrap());
    }
}
