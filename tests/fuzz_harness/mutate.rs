//! Small damage to inputs: of bytes, of lines, of words, and of values where the input is JSON.

use assay::units::SplitMix64;
use serde_json::Value;

/// Words that parsers and arithmetic stumble over.
const WORDS: &[&str] = &[
    "0",
    "-1",
    "1e3",
    "1e400",
    "-0",
    "010",
    "0x10",
    "18446744073709551615",
    "18446744073709551616",
    "-9223372036854775808",
    "9007199254740993",
    ".nan",
    ".inf",
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
    ">",
    "---",
    "...",
    "#",
    "\t",
    "\u{0}",
    "\u{feff}",
    "\u{202e}",
    "</title><img src=x onerror=alert(1)>",
    "../../x",
    "é",
    "\u{1f600}",
    "? ",
    ": ",
    "- ",
    "{a: b",
    "[a, b",
    "'",
    "\"",
    "%YAML 9.9",
];

/// A source of damaged inputs.
pub(crate) struct Mutator {
    words: SplitMix64,
}

impl Mutator {
    pub(crate) fn new(seed: u64) -> Mutator {
        Mutator { words: SplitMix64::new(seed) }
    }

    fn below(&mut self, n: usize) -> usize {
        (self.words.next_word() % n.max(1) as u64) as usize
    }

    fn word(&mut self) -> &'static str {
        WORDS[self.below(WORDS.len())]
    }

    /// One of the seeds with one to four mutations.
    pub(crate) fn mutate(&mut self, seeds: &[Vec<u8>]) -> Vec<u8> {
        let mut input = seeds[self.below(seeds.len())].clone();
        for _ in 0..1 + self.below(4) {
            // Values of JSON half of the time: damaged bytes rarely get past the parser.
            let json = self.below(2) == 0;
            input = match json.then(|| self.values(&input)).flatten() {
                Some(changed) => changed,
                None => self.bytes(input, seeds),
            };
        }
        input
    }

    fn bytes(&mut self, mut input: Vec<u8>, seeds: &[Vec<u8>]) -> Vec<u8> {
        let at = self.below(input.len() + 1);
        match self.below(8) {
            0 if at < input.len() => input[at] ^= 1 << self.below(8),
            1 => input.truncate(at),
            2 => drop(input.splice(at..at, self.word().bytes())),
            3 => {
                // A word in place of a scalar.
                let is_end = |b: &u8| b" ,]}\n:".contains(b);
                let end = input[at..].iter().position(is_end).map_or(input.len(), |e| at + e);
                drop(input.splice(at..end, self.word().bytes()));
            }
            4 => self.lines(&mut input, |lines, from, to| drop(lines.remove(from.max(to)))),
            5 => self.lines(&mut input, |lines, from, to| {
                let line = lines[from].clone();
                lines.insert(to, line);
            }),
            6 => self.lines(&mut input, |lines, from, to| lines.swap(from, to)),
            _ => {
                let other = &seeds[self.below(seeds.len())];
                let from = self.below(other.len() + 1);
                let end = (from + 1 + self.below(200)).min(other.len());
                drop(input.splice(at..at, other[from.min(end)..end].iter().copied()));
            }
        }
        input
    }

    fn lines(&mut self, input: &mut Vec<u8>, change: impl FnOnce(&mut Vec<Vec<u8>>, usize, usize)) {
        let mut lines: Vec<Vec<u8>> = input.split(|b| *b == b'\n').map(<[u8]>::to_vec).collect();
        let (from, to) = (self.below(lines.len()), self.below(lines.len()));
        change(&mut lines, from, to);
        *input = lines.join(&b'\n');
    }

    /// Another value somewhere in the JSON; `None` where the input is none.
    fn values(&mut self, input: &[u8]) -> Option<Vec<u8>> {
        let mut document: Value = serde_json::from_slice(input).ok()?;
        let count = places(&document);
        let mut target = self.below(count);
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
            _ => Value::from(self.word()),
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
