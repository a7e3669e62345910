//! A deterministic fuzzer for stable Rust: no toolchain, no coverage instrumentation.
//!
//! A target turns bytes into a *signature*, a short text that says which way the parser went (the
//! kind of its error, with numbers and names left out). Inputs with a signature that was not seen
//! before join the pool, which stands in for coverage. The corpus of a target is the files of some
//! folders; `cargo test` replays them and a fixed number of mutations. A longer run is an ignored
//! test; everything follows from its seed.
//!
//! An input that makes a target panic or takes too long is made smaller, written to
//! `target/tmp/fuzz/NAME/found-…`, and reported; it belongs into `tests/corpus/`. One that ends the
//! process (an overflow of the stack, an abort, a hang) is what `current` there holds.

use crate::mutate::Mutator;
use crate::watch::Watch;
use std::collections::BTreeMap;
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// A parser under test.
pub(crate) struct Target {
    pub(crate) name: &'static str,
    /// Whose files, without those of folders within, are its corpus.
    pub(crate) folders: &'static [&'static str],
    /// Pieces that mutations put in.
    pub(crate) dictionary: &'static [&'static str],
    /// Runs the parser and checks what must hold; gives the signature.
    pub(crate) run: fn(&[u8]) -> String,
}

/// Mutations that `cargo test` tries for each target.
const REPLAY_MUTATIONS: usize = 1500;

/// Most inputs that are kept for further mutations.
const POOL_LIMIT: usize = 1 << 13;

/// Most signatures that are told apart.
const SIGNATURE_LIMIT: usize = 1 << 16;

/// Longest time that one input may take.
const SLOW: Duration = Duration::from_secs(10);

/// Past this an input is not waited for: the process ends.
const STUCK: Duration = Duration::from_secs(20);

/// Most inputs of a hunt that are kept for a person to look at.
const NEW_LIMIT: usize = 40;

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
    /// A folder is missing or has no files.
    pub(crate) fn corpus(&self) -> Vec<Vec<u8>> {
        let mut corpus = Vec::new();
        for folder in self.folders {
            let folder = root().join(folder);
            let mut paths: Vec<PathBuf> = fs::read_dir(&folder)
                .unwrap_or_else(|e| panic!("{}: {e}", folder.display()))
                .map(|e| e.unwrap().path())
                .filter(|p| p.is_file())
                .collect();
            paths.sort();
            assert!(!paths.is_empty(), "{} is empty", folder.display());
            corpus.extend(paths.iter().map(|p| fs::read(p).unwrap()));
        }
        corpus
    }

    /// Every corpus file as it is, and mutations of each in turn.
    pub(crate) fn replay(&self) -> Report {
        let corpus = self.corpus();
        let watch = Watch::new(scratch(self.name).join("current-replay"), STUCK);
        let mut report = Report::default();
        corpus.iter().for_each(|input| _ = self.try_one(input, &mut report, &watch));
        let mut mutator = Mutator::new(1);
        for input in corpus.iter().cycle().take(REPLAY_MUTATIONS) {
            let mutated = mutator.mutate(input, &corpus, self.dictionary);
            self.try_one(&mutated, &mut report, &watch);
        }
        report
    }

    /// Mutates until `cpu` time of this thread is used up; leaves the smallest of the inputs with a
    /// signature of their own as `new-…`.
    pub(crate) fn hunt(&self, cpu: Duration, seed: u64) -> Report {
        let mut pool = self.corpus();
        let watch = Watch::new(scratch(self.name).join("current"), STUCK);
        let mut report = Report::default();
        pool.iter().for_each(|input| _ = self.try_one(input, &mut report, &watch));
        let mut mutator = Mutator::new(seed);
        let mut smallest: Vec<Vec<u8>> = Vec::new();
        let start = cpu_time();
        while cpu_time() - start < cpu && report.broken.len() < 5 {
            let input = &pool[mutator.below(pool.len())];
            let mutated = mutator.mutate(input, &pool, self.dictionary);
            if !self.try_one(&mutated, &mut report, &watch) {
                continue;
            }
            smallest.push(mutated.clone());
            smallest.sort_by_key(Vec::len);
            smallest.truncate(NEW_LIMIT);
            if pool.len() == POOL_LIMIT {
                pool[mutator.below(POOL_LIMIT)] = mutated;
            } else {
                pool.push(mutated);
            }
        }
        self.save(&smallest);
        report
    }

    /// Writes inputs as `new-…`, in place of those of the hunt before.
    fn save(&self, inputs: &[Vec<u8>]) {
        let folder = scratch(self.name);
        for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
            if entry.file_name().to_string_lossy().starts_with("new-") {
                _ = fs::remove_file(entry.path());
            }
        }
        for input in inputs {
            let name = format!("new-{}", assay::units::Digest::of(input).short());
            // Nothing is lost that another hunt with this seed does not find.
            _ = fs::write(folder.join(name), input);
        }
    }

    /// Runs one input; whether its signature is new.
    fn try_one(&self, input: &[u8], report: &mut Report, watch: &Watch) -> bool {
        report.inputs += 1;
        match self.signature(input, watch) {
            Ok(signature) => {
                if report.signatures.len() == SIGNATURE_LIMIT
                    && !report.signatures.contains_key(&signature)
                {
                    return false;
                }
                let seen = report.signatures.entry(signature).or_insert(0);
                *seen += 1;
                *seen == 1
            }
            Err(reason) => {
                let small = self.smaller(input.to_vec(), watch);
                let name = format!("found-{}", assay::units::Digest::of(&small).short());
                // The report names the input even where the folder cannot be written.
                _ = fs::write(scratch(self.name).join(name), &small);
                report.broken.push((small, reason));
                false
            }
        }
    }

    fn signature(&self, input: &[u8], watch: &Watch) -> Result<String, String> {
        watch.begin(input);
        let start = Instant::now();
        let result = catch_unwind(AssertUnwindSafe(|| (self.run)(input)));
        watch.end();
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
    fn smaller(&self, mut input: Vec<u8>, watch: &Watch) -> Vec<u8> {
        let mut piece = input.len() / 2;
        while piece > 0 {
            let mut at = 0;
            while at < input.len() {
                let end = (at + piece).min(input.len());
                let without = [&input[..at], &input[end..]].concat();
                if self.signature(&without, watch).is_err() { input = without } else { at = end }
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

/// The project's folder, which a binary taken to another machine is told.
pub(crate) fn root() -> PathBuf {
    std::env::var_os("CARGO_MANIFEST_DIR")
        .map_or_else(|| env!("CARGO_MANIFEST_DIR").into(), PathBuf::from)
}

/// A folder of this process for a target's files.
pub(crate) fn scratch(name: &str) -> PathBuf {
    let folder = root().join("target/tmp/fuzz").join(name);
    // Whoever writes there says what is wrong.
    _ = fs::create_dir_all(&folder);
    folder
}
