//! Small damage to inputs: of bytes, of lines, of words, and of values where the input is JSON.

use assay::units::SplitMix64;
use serde_json::Value;

/// Most bytes of an input.
const LENGTH_LIMIT: usize = 64 << 10;

/// Words that parsers and arithmetic stumble over.
const WORDS: &[&str] = &[
    "0",
    "-1",
    "1",
    "255",
    "65536",
    "0.5",
    "1e3",
    "1e999",
    "-0",
    "010",
    "0x10",
    "4294967296",
    "9007199254740993",
    "9223372036854775808",
    "18446744073709551616",
    ".nan",
    "-.inf",
    "null",
    "~",
    "no",
    "true",
    "\"\"",
    "[]",
    "{}",
    "&a",
    "*a",
    "<<",
    "!!binary x",
    "|",
    "---",
    "#",
    "\t",
    "\u{0}",
    "\u{feff}",
    "\u{202e}",
    "</title><img src=x onerror=alert(1)>",
    "../../x",
    "\u{1f600}",
    ": ",
    "- ",
    "{a: b",
    "'",
    "\"",
    "%YAML 9.9",
];

/// A source of damaged inputs; everything follows from its seed.
pub(crate) struct Mutator {
    words: SplitMix64,
}

impl Mutator {
    pub(crate) fn new(seed: u64) -> Mutator {
        Mutator { words: SplitMix64::new(seed) }
    }

    pub(crate) fn below(&mut self, limit: usize) -> usize {
        (self.words.next_word() % limit.max(1) as u64) as usize
    }

    /// One to six edits of `input`, with pieces of the pool and of the dictionary.
    pub(crate) fn mutate(
        &mut self,
        input: &[u8],
        pool: &[Vec<u8>],
        dictionary: &[&str],
    ) -> Vec<u8> {
        let mut bytes = input.to_vec();
        for _ in 0..=self.below(6) {
            // Values of JSON half of the time: damaged bytes rarely get past its parser.
            let json = self.below(2) == 0;
            bytes = match json.then(|| self.values(&bytes)).flatten() {
                Some(changed) => changed,
                None => self.bytes(bytes, pool, dictionary),
            };
            bytes.truncate(LENGTH_LIMIT);
        }
        bytes
    }

    fn bytes(&mut self, mut bytes: Vec<u8>, pool: &[Vec<u8>], dictionary: &[&str]) -> Vec<u8> {
        let at = self.below(bytes.len() + 1);
        let end = (at + 1 + self.below(32)).min(bytes.len());
        match self.below(13) {
            0 if at < bytes.len() => bytes[at] = self.below(256) as u8,
            1 if at < bytes.len() => bytes[at] ^= 1 << self.below(8),
            2 => drop(bytes.drain(at..end)),
            3 => {
                let piece = bytes[at..end].to_vec();
                let to = self.below(bytes.len() + 1);
                bytes.splice(to..to, piece);
            }
            4 => {
                let piece = bytes[at..end].to_vec();
                let times = 1 << self.below(8);
                bytes.splice(at..at, piece.repeat(times));
            }
            5 => bytes.truncate(at),
            6 | 7 => self.put(&mut bytes, at, WORDS),
            8 | 9 => self.put(&mut bytes, at, dictionary),
            10 => self.lines(&mut bytes),
            _ => {
                let other = &pool[self.below(pool.len())];
                let from = self.below(other.len());
                let to = (from + 1 + self.below(200)).min(other.len());
                bytes.splice(at..at, other[from..to].iter().copied());
            }
        }
        bytes
    }

    /// Puts a piece in, or in place of a word or number that stands there.
    fn put(&mut self, bytes: &mut Vec<u8>, at: usize, pieces: &[&str]) {
        if pieces.is_empty() {
            return;
        }
        let piece = pieces[self.below(pieces.len())];
        let word = |b: &u8| b.is_ascii_alphanumeric() || *b == b'_' || *b == b'.';
        let end = match self.below(2) {
            0 => at,
            _ => at + bytes[at..].iter().take_while(|b| word(b)).count(),
        };
        bytes.splice(at..end, piece.bytes());
    }

    /// Takes a line away, doubles it, or swaps it with another.
    fn lines(&mut self, input: &mut Vec<u8>) {
        let mut lines: Vec<Vec<u8>> = input.split(|b| *b == b'\n').map(<[u8]>::to_vec).collect();
        let (from, to) = (self.below(lines.len()), self.below(lines.len()));
        match self.below(3) {
            0 => drop(lines.remove(from)),
            1 => lines.insert(to, lines[from].clone()),
            _ => lines.swap(from, to),
        }
        *input = lines.join(&b'\n');
    }

    /// Another value somewhere in the document, or in one of the lines if each is a document;
    /// `None` where the input is no JSON.
    fn values(&mut self, input: &[u8]) -> Option<Vec<u8>> {
        if let Ok(document) = serde_json::from_slice(input) {
            return self.another(document);
        }
        let mut lines: Vec<&[u8]> = input.split(|b| *b == b'\n').collect();
        let at = self.below(lines.len());
        let changed = self.another(serde_json::from_slice(lines[at]).ok()?)?;
        lines[at] = &changed;
        Some(lines.join(&b'\n'))
    }

    fn another(&mut self, mut document: Value) -> Option<Vec<u8>> {
        let mut target = self.below(places(&document));
        let replacement = self.value();
        replace(&mut document, &mut target, replacement);
        serde_json::to_vec(&document).ok()
    }

    fn value(&mut self) -> Option<Value> {
        let value = match self.below(12) {
            // The value is removed, or doubled where it stands in a list.
            0 | 1 => return None,
            2 => Value::Null,
            3 => Value::from(0),
            4 => Value::from(-1),
            5 => Value::from(u64::MAX),
            6 => Value::from(1e308),
            7 => Value::from(-1e-308),
            8 => Value::from(""),
            9 => Value::Array(Vec::new()),
            10 => Value::Object(serde_json::Map::new()),
            _ => Value::from(WORDS[self.below(WORDS.len())]),
        };
        Some(value)
    }
}

/// Values in a document, itself included.
fn places(value: &Value) -> usize {
    1 + match value {
        Value::Array(items) => items.iter().map(places).sum(),
        Value::Object(fields) => fields.values().map(places).sum(),
        _ => 0,
    }
}

/// Replaces the value that is `target` places away, counted as [`places`] does.
fn replace(value: &mut Value, target: &mut usize, with: Option<Value>) -> bool {
    if *target == 0 {
        *value = with.unwrap_or(Value::Null);
        return true;
    }
    *target -= 1;
    match value {
        Value::Array(items) => {
            for at in 0..items.len() {
                if *target == 0 && with.is_none() {
                    let item = items[at].clone();
                    if item.is_object() {
                        items.push(item)
                    } else {
                        drop(items.remove(at))
                    }
                    return true;
                }
                if replace(&mut items[at], target, with.clone()) {
                    return true;
                }
            }
            false
        }
        Value::Object(fields) => {
            let keys: Vec<String> = fields.keys().cloned().collect();
            for key in keys {
                if *target == 0 && with.is_none() {
                    fields.remove(&key);
                    return true;
                }
                if fields.get_mut(&key).is_some_and(|v| replace(v, target, with.clone())) {
                    return true;
                }
            }
            false
        }
        _ => false,
    }
}
