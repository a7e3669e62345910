//! A deterministic fuzzer for stable Rust: no toolchain, no coverage instrumentation.
//!
//! A target turns bytes into a *signature*, a short text that says which way the parser went (the
//! kind of its error, with numbers and names left out). Inputs with a signature that was not seen
//! before join the pool, which stands in for coverage. The corpus of a target is the files of
//! `tests/corpus/NAME/`; `cargo test` replays them and a fixed number of mutations of each. A longer
//! run is an ignored test; everything follows from its seed.
//!
//! An input that makes a target panic or takes too long is made smaller, written to the corpus
//! folder as `found-…`, and reported.

use assay::units::SplitMix64;
use std::collections::BTreeMap;
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// A parser under test.
pub(crate) struct Target {
    /// Its folder under `tests/corpus/`.
    pub(crate) name: &'static str,
    /// Pieces that mutations put in.
    pub(crate) dictionary: &'static [&'static str],
    /// Runs the parser and checks what must hold; gives the signature.
    pub(crate) run: fn(&[u8]) -> String,
}

/// Mutations of each corpus file that `cargo test` tries.
const REPLAY_MUTATIONS: usize = 200;

/// Longest time that one input may take.
const SLOW: Duration = Duration::from_secs(10);

/// Most bytes of an input.
const LENGTH_LIMIT: usize = 64 << 10;

/// What a run saw.
#[derive(Debug, Default)]
pub(crate) struct Report {
    pub(crate) inputs: usize,
    pub(crate) signatures: BTreeMap<String, usize>,
    /// Inputs that broke the target, with the reason.
    pub(crate) broken: Vec<(Vec<u8>, String)>,
}

impl Target {
    /// The corpus, in order of file names.
    ///
    /// # Panics
    /// There is none.
    pub(crate) fn corpus(&self) -> Vec<Vec<u8>> {
        let folder = self.folder();
        let mut paths: Vec<PathBuf> = fs::read_dir(&folder)
            .unwrap_or_else(|e| panic!("{}: {e}", folder.display()))
            .map(|e| e.unwrap().path())
            .collect();
        paths.sort();
        assert!(!paths.is_empty(), "{} is empty", folder.display());
        paths.iter().map(|p| fs::read(p).unwrap()).collect()
    }

    fn folder(&self) -> PathBuf {
        PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/corpus").join(self.name)
    }

    /// Every corpus file as it is, and some mutations of each.
    pub(crate) fn replay(&self) -> Report {
        let corpus = self.corpus();
        let mut report = Report::default();
        corpus.iter().for_each(|input| _ = self.try_one(input, &mut report));
        let mut random = Random(SplitMix64::new(1));
        for input in &corpus {
            for _ in 0..REPLAY_MUTATIONS {
                let mutated = random.mutate(input, &corpus, self.dictionary);
                self.try_one(&mutated, &mut report);
            }
        }
        report
    }

    /// Mutates until `cpu` time of this thread is used up.
    pub(crate) fn hunt(&self, cpu: Duration, seed: u64) -> Report {
        let mut pool = self.corpus();
        let mut report = Report::default();
        pool.iter().for_each(|input| _ = self.try_one(input, &mut report));
        let mut random = Random(SplitMix64::new(seed));
        let start = cpu_time();
        while cpu_time() - start < cpu && report.broken.len() < 5 {
            let input = &pool[random.below(pool.len())];
            let mutated = random.mutate(input, &pool, self.dictionary);
            if self.try_one(&mutated, &mut report) {
                pool.push(mutated);
            }
        }
        report
    }

    /// Runs one input; whether its signature is new.
    fn try_one(&self, input: &[u8], report: &mut Report) -> bool {
        report.inputs += 1;
        match self.signature(input) {
            Ok(signature) => {
                let seen = report.signatures.entry(signature).or_insert(0);
                *seen += 1;
                *seen == 1
            }
            Err(reason) => {
                let small = self.smaller(input.to_vec());
                let name = format!("found-{}", assay::units::Digest::of(&small).short());
                // The report names the input even where the folder cannot be written.
                _ = fs::write(self.folder().join(name), &small);
                report.broken.push((small, reason));
                false
            }
        }
    }

    fn signature(&self, input: &[u8]) -> Result<String, String> {
        let start = Instant::now();
        let result = catch_unwind(AssertUnwindSafe(|| (self.run)(input)));
        match result {
            Err(panic) => Err(match panic.downcast_ref::<String>() {
                Some(text) => text.clone(),
                None => panic.downcast_ref::<&str>().map_or("a panic", |t| t).to_owned(),
            }),
            Ok(_) if start.elapsed() > SLOW => Err(format!("took {:?}", start.elapsed())),
            Ok(signature) => Ok(signature),
        }
    }

    /// Takes pieces away as long as the input still breaks the target.
    fn smaller(&self, mut input: Vec<u8>) -> Vec<u8> {
        let mut piece = input.len() / 2;
        while piece > 0 {
            let mut at = 0;
            while at < input.len() {
                let end = (at + piece).min(input.len());
                let without = [&input[..at], &input[end..]].concat();
                if self.signature(&without).is_err() { input = without } else { at = end }
            }
            piece /= 2;
        }
        input
    }
}

impl Report {
    /// Fails if something broke the target, with each input.
    ///
    /// # Panics
    /// Then.
    pub(crate) fn assert_clean(&self, target: &Target, least_signatures: usize) {
        let broken: Vec<String> = self
            .broken
            .iter()
            .map(|(input, reason)| format!("{reason}\n  {:?}", String::from_utf8_lossy(input)))
            .collect();
        assert!(broken.is_empty(), "{}:\n{}", target.name, broken.join("\n"));
        let count = self.signatures.len();
        assert!(count >= least_signatures, "{}: {count} signatures: {self:?}", target.name);
    }
}

/// A message with quoted texts, paths and numbers left out: what kind of message it is.
pub(crate) fn kind_of_message(message: &str) -> String {
    let mut kind = String::new();
    let mut quote: Option<char> = None;
    for c in message.chars().take(400) {
        match quote {
            Some(q) if c == q => quote = None,
            Some(_) => {}
            None if c == '`' || c == '"' => quote = Some(c),
            None if c.is_ascii_digit() => {}
            None => kind.push(c),
        }
    }
    kind.truncate(kind.char_indices().nth(120).map_or(kind.len(), |(at, _)| at));
    kind
}

/// Time that this thread has had a processor; the wall clock where the system does not say.
fn cpu_time() -> Duration {
    let stat = fs::read_to_string("/proc/thread-self/schedstat").ok();
    let nanoseconds = stat.and_then(|s| s.split(' ').next()?.parse().ok());
    nanoseconds.map_or_else(wall_time, Duration::from_nanos)
}

fn wall_time() -> Duration {
    static START: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
    START.get_or_init(Instant::now).elapsed()
}

struct Random(SplitMix64);

const NUMBERS: [&str; 12] = [
    "0",
    "-1",
    "1",
    "2",
    "255",
    "65536",
    "4294967296",
    "9007199254740993",
    "9223372036854775808",
    "18446744073709551616",
    "1e999",
    "0.5",
];

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        (self.0.next_word() % limit.max(1) as u64) as usize
    }

    /// One to six edits.
    fn mutate(&mut self, input: &[u8], pool: &[Vec<u8>], dictionary: &[&str]) -> Vec<u8> {
        let mut bytes = input.to_vec();
        for _ in 0..=self.below(6) {
            let at = self.below(bytes.len() + 1);
            let end = (at + 1 + self.below(32)).min(bytes.len());
            match self.below(10) {
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
                6 => self.put(&mut bytes, at, &NUMBERS),
                7 | 8 => self.put(&mut bytes, at, dictionary),
                _ => {
                    let other = &pool[self.below(pool.len())];
                    let from = self.below(other.len());
                    let to = (from + 1 + self.below(64)).min(other.len());
                    bytes.splice(at..at, other[from..to].iter().copied());
                }
            }
            bytes.truncate(LENGTH_LIMIT);
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
}
