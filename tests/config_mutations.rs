//! Seeded mutations of good files: whatever comes in, the parsers answer, and never panic.

use assay::descriptor::{ConfigFiles, Descriptor};
use assay::units::SplitMix64;
use std::fs;
use std::path::Path;

const ROUNDS: usize = 2_000;

/// Pieces that make a mutation likely to stay JSON.
const PIECES: [&str; 22] = [
    "null",
    "true",
    "false",
    "0",
    "-1",
    "1e999",
    "0.5",
    "\"\"",
    "\"gdn\"",
    "[]",
    "{}",
    "[[]]",
    ",",
    ":",
    "}",
    "]",
    "18446744073709551616",
    "1048576",
    "\\ud800",
    "é",
    "{layer}",
    "\"full_attention\"",
];

struct Source(SplitMix64);

impl Source {
    fn below(&mut self, limit: usize) -> usize {
        (self.0.next_word() % limit.max(1) as u64) as usize
    }

    fn mutate(&mut self, text: &str) -> Vec<u8> {
        let mut bytes = text.as_bytes().to_vec();
        for _ in 0..=self.below(3) {
            let at = self.below(bytes.len());
            match self.below(5) {
                0 => bytes[at] = self.below(256) as u8,
                1 => bytes.truncate(at),
                2 => drop(bytes.drain(at..(at + self.below(40)).min(bytes.len()))),
                3 => self.replace_value(&mut bytes),
                _ => {
                    let piece = PIECES[self.below(PIECES.len())];
                    bytes.splice(at..at, piece.bytes());
                }
            }
            if bytes.is_empty() {
                break;
            }
        }
        bytes
    }

    /// Replaces what stands behind a colon, up to the next comma or line end.
    fn replace_value(&mut self, bytes: &mut Vec<u8>) {
        let colons: Vec<usize> = (0..bytes.len()).filter(|i| bytes[*i] == b':').collect();
        let Some(colon) = colons.get(self.below(colons.len())).copied() else { return };
        let end = bytes[colon..]
            .iter()
            .position(|b| [b',', b'\n'].contains(b))
            .map_or(bytes.len(), |n| colon + n);
        let piece = PIECES[self.below(PIECES.len())];
        bytes.splice(colon + 1..end, format!(" {piece}").into_bytes());
    }
}

fn run(texts: &[String], seed: u64, parse: impl Fn(&[u8]) -> bool) -> usize {
    let mut source = Source(SplitMix64::new(seed));
    let mut accepted = 0;
    for _ in 0..ROUNDS {
        let text = source.below(texts.len());
        accepted += usize::from(parse(&source.mutate(&texts[text])));
    }
    accepted
}

fn files(folder: &str, name: &str) -> Vec<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
    let mut paths: Vec<_> = fs::read_dir(root).unwrap().map(|e| e.unwrap().path()).collect();
    paths.sort();
    paths
        .iter()
        .map(|p| if p.is_dir() { p.join(name) } else { p.clone() })
        .filter(|p| p.extension().is_some_and(|e| e == "json") && p.is_file())
        .map(|p| fs::read_to_string(p).unwrap())
        .collect()
}

#[test]
fn mutated_configs_are_answered() {
    let configs = files("descriptors/configs", "config.json");
    assert!(configs.len() >= 7);
    let accepted = run(&configs, 11, |bytes| {
        let files =
            ConfigFiles { config: ("config.json", bytes), generation_config: None, tensors: None };
        match Descriptor::derive(&files) {
            // What is accepted is a valid descriptor, which survives its own file format.
            Ok(d) => {
                let text = d.to_json();
                let back = Descriptor::from_json("d", text.as_bytes()).unwrap();
                assert_eq!(back.to_json(), text);
                true
            }
            Err(error) => {
                assert!(!error.to_string().is_empty());
                false
            }
        }
    });
    assert!((1..ROUNDS).contains(&accepted), "{accepted} of {ROUNDS} accepted");
}

#[test]
fn mutated_descriptors_are_answered() {
    let snapshots: Vec<String> =
        files("descriptors", "none").into_iter().filter(|t| t.len() < 10_000).collect();
    assert!(snapshots.len() >= 4);
    let accepted = run(&snapshots, 12, |bytes| match Descriptor::from_json("d", bytes) {
        Ok(d) => {
            d.validate().unwrap();
            let _ = (d.semantic(), d.storage(), d.parameters(), d.gdn_state_bytes_per_sequence());
            true
        }
        Err(error) => {
            assert!(!error.to_string().is_empty());
            false
        }
    });
    assert!((1..ROUNDS).contains(&accepted), "{accepted} of {ROUNDS} accepted");
}
