//! Splitting a run over machines.

use crate::units::Digest;
use std::fmt;
use std::str::FromStr;

/// The trials of one machine of several: `hash:1/4` is the first quarter. By the hash of the
/// name, so that adding a gate moves no other trial.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Partition {
    index: u64,
    count: u64,
}

impl Partition {
    /// Whether a trial belongs to this part.
    pub fn includes(self, trial: &str) -> bool {
        let Digest(bytes) = Digest::of(trial.as_bytes());
        let mut word = [0; 8];
        word.copy_from_slice(&bytes[..8]);
        u64::from_be_bytes(word) % self.count == self.index - 1
    }

    /// Which part it is, from 1.
    pub fn index(self) -> u64 {
        self.index
    }

    /// Of how many parts.
    pub fn count(self) -> u64 {
        self.count
    }
}

impl FromStr for Partition {
    type Err = String;

    fn from_str(text: &str) -> Result<Partition, String> {
        let parts = text.strip_prefix("hash:").and_then(|rest| rest.split_once('/'));
        let numbers = parts.and_then(|(i, n)| Some((i.parse().ok()?, n.parse().ok()?)));
        match numbers {
            Some((index, count)) if index >= 1 && index <= count => Ok(Partition { index, count }),
            _ => Err(format!("expected `hash:I/N` with 1 ≤ I ≤ N, found `{text}`")),
        }
    }
}

impl fmt::Display for Partition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "hash:{}/{}", self.index, self.count)
    }
}

#[cfg(test)]
mod tests {
    use super::Partition;

    #[test]
    fn parts_are_disjoint_and_cover_everything() {
        let parts: Vec<Partition> =
            (1..=4).map(|i| format!("hash:{i}/4").parse().unwrap()).collect();
        for n in 0..200 {
            let name = format!("gate/cpu/case-{n}");
            assert_eq!(parts.iter().filter(|p| p.includes(&name)).count(), 1);
        }
        let first = (0..200).filter(|n| parts[0].includes(&format!("gate/cpu/case-{n}"))).count();
        assert!((25..75).contains(&first), "{first} of 200");
        for wrong in ["hash:0/4", "hash:5/4", "1/4", "hash:a/b", "hash:1/0"] {
            assert!(wrong.parse::<Partition>().is_err(), "{wrong}");
        }
    }
}
