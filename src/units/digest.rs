//! SHA-256 digests.

use sha2::Digest as _;
use std::fmt;

/// A SHA-256 digest, printed as 64 lower-case hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Digest(pub [u8; 32]);

impl Digest {
    /// The digest of `bytes`.
    pub fn of(bytes: &[u8]) -> Digest {
        let mut hasher = Hasher::new();
        hasher.update(bytes);
        hasher.finish()
    }

    /// The digest that 64 lower-case hexadecimal digits spell.
    pub fn parse(text: &str) -> Option<Digest> {
        let mut digest = Digest([0; 32]);
        let digits = text.as_bytes();
        if digits.len() != 64 || digits.iter().any(|d| !matches!(d, b'0'..=b'9' | b'a'..=b'f')) {
            return None;
        }
        for (byte, pair) in digest.0.iter_mut().zip(digits.chunks_exact(2)) {
            *byte = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
        }
        Some(digest)
    }

    /// The first 12 hexadecimal digits, for display.
    pub fn short(&self) -> String {
        self.to_string()[..12].to_owned()
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|b| write!(f, "{b:02x}"))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Digest({self})")
    }
}

/// An incremental SHA-256.
#[derive(Clone, Debug, Default)]
pub struct Hasher(sha2::Sha256);

impl Hasher {
    /// A hasher that has seen nothing.
    pub fn new() -> Hasher {
        Hasher::default()
    }

    /// Appends bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// Appends the bits of values, the lowest byte of each first.
    pub fn update_f32(&mut self, values: &[f32]) {
        values.iter().for_each(|x| self.update(&x.to_bits().to_le_bytes()));
    }

    /// The digest of everything appended.
    pub fn finish(self) -> Digest {
        Digest(self.0.finalize().into())
    }
}
