//! Thousands of mutated headers and indices: the reader never panics, never allocates more than a
//! small multiple of the file, and never accepts what the reference implementation refuses.
//!
//! Deterministic: mutations follow from the seed and the files under `tests/corpus/checkpoint/`. A
//! file that once got through goes there.

use assay::weights::{Checkpoint, Rule};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Counts the bytes that the current thread holds, and the most it held.
struct Counting;

thread_local! {
    static HELD_BYTES: Cell<isize> = const { Cell::new(0) };
    static PEAK_BYTES: Cell<isize> = const { Cell::new(0) };
}

fn count(bytes: isize) {
    let held = HELD_BYTES.get() + bytes;
    HELD_BYTES.set(held);
    PEAK_BYTES.set(PEAK_BYTES.get().max(held));
}

// SAFETY: every call goes to the system's allocator unchanged; counting allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: the caller's promise about `layout` is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(-(layout.size() as isize));
        // SAFETY: the caller's promise about `pointer` and `layout` is passed on.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Opens `path` and returns the result with the most bytes held meanwhile.
fn open(path: &Path) -> (Result<Checkpoint, Rule>, usize) {
    let before = HELD_BYTES.get();
    PEAK_BYTES.set(before);
    let result = Checkpoint::open(path).map_err(|e| {
        assert!(!e.to_string().is_empty());
        e.rule
    });
    (result, (PEAK_BYTES.get() - before) as usize)
}

fn bound_bytes(file_bytes: usize) -> usize {
    // Maps, paths and messages, and up to 32 bytes for a byte of header.
    32 * 1024 + 32 * file_bytes
}

/// SplitMix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit.max(1) as u64) as usize
    }

    fn pick<'a, T: ?Sized>(&mut self, items: &[&'a T]) -> &'a T {
        items[self.below(items.len())]
    }
}

const TOKENS: &[&[u8]] = &[
    b"0",
    b"1",
    b"2",
    b"8",
    b"-1",
    b"1.5",
    b"1e9",
    b"4294967296",
    b"9223372036854775807",
    b"18446744073709551615",
    b"18446744073709551616",
    b"[",
    b"]",
    b"{",
    b"}",
    b"\"",
    b",",
    b":",
    b"null",
    b"true",
    b"\"a\"",
    b"\"F32\"",
    b"\"BF16\"",
    b"\"dtype\"",
    b"\"shape\"",
    b"\\u0061",
    b"\\ud800",
    b"\xff",
    b"\xc3\xa9",
    b"\0",
    b" ",
    b"__metadata__",
    b"../",
];

/// One to four edits: bytes flipped, removed, repeated, numbers and tokens put in.
fn mutate(text: &mut Vec<u8>, random: &mut Random) {
    for _ in 0..=random.below(4) {
        let at = random.below(text.len() + 1);
        let end = (at + 1 + random.below(12)).min(text.len());
        match random.below(6) {
            0 if at < text.len() => text[at] ^= 1 << random.below(8),
            1 => drop(text.drain(at..end)),
            2 => {
                let again = text[at..end].to_vec();
                text.splice(at..at, again);
            }
            3 => drop(text.splice(at..at, random.pick(TOKENS).iter().copied())),
            4 => {
                // A number becomes another one.
                let digit = |b: &u8| b.is_ascii_digit();
                if let Some(start) = text[at..].iter().position(digit).map(|i| i + at) {
                    let end = start + text[start..].iter().take_while(|b| digit(b)).count();
                    text.splice(start..end, random.pick(&TOKENS[..11]).iter().copied());
                }
            }
            _ => text.truncate(text.len() - random.below(4).min(text.len())),
        }
    }
}

/// The inputs of a fuzz target.
fn corpus(target: &str) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus").join(target);
    let mut paths: Vec<PathBuf> =
        std::fs::read_dir(folder).unwrap().map(|e| e.unwrap().path()).collect();
    paths.sort();
    assert!(paths.len() >= 3);
    paths.iter().map(|p| std::fs::read(p).unwrap()).collect()
}

/// Writes a new file. Truncating the old one would make some file systems flush it to disk.
fn replace(path: &Path, bytes: &[u8]) {
    let _ = std::fs::remove_file(path);
    std::fs::write(path, bytes).unwrap();
}

const ROUNDS: usize = 8_000;

#[test]
fn mutated_headers_are_read_or_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.safetensors");
    let corpus = corpus("checkpoint");
    let mut random = Random(1);
    let mut accepted = 0;
    let mut rules: BTreeMap<Rule, usize> = BTreeMap::new();
    for round in 0..ROUNDS {
        let whole = &corpus[round % corpus.len()];
        let length = u64::from_le_bytes(*whole.first_chunk().unwrap()) as usize;
        let mut header = whole[8..8 + length].to_vec();
        let mut data = whole[8 + length..].to_vec();
        if round >= corpus.len() {
            mutate(&mut header, &mut random);
        }
        if random.below(16) == 0 {
            data.resize(random.below(32), 0);
        }
        let prefix = match random.below(32) {
            0 => random.next() >> random.below(64),
            _ => header.len() as u64,
        };
        let file = [&prefix.to_le_bytes(), header.as_slice(), &data].concat();
        replace(&path, &file);
        let (result, peak_bytes) = open(&path);
        assert!(peak_bytes < bound_bytes(file.len()), "round {round}: {peak_bytes} bytes held");
        match result {
            Err(rule) => *rules.entry(rule).or_default() += 1,
            Ok(checkpoint) => {
                accepted += 1;
                let theirs = safetensors::SafeTensors::deserialize(&file)
                    .unwrap_or_else(|e| panic!("round {round}: the reference refuses it: {e}"));
                assert_eq!(theirs.len(), checkpoint.tensors().count());
                for (name, _) in checkpoint.tensors() {
                    let tensor = theirs.tensor(name).unwrap();
                    assert_eq!(Some(tensor.data()), checkpoint.bytes(name), "round {round}");
                }
            }
        }
    }
    assert!(accepted > ROUNDS / 100, "only {accepted} were accepted: the mutations are too wild");
    assert!(rules.len() >= 15, "only {rules:?} were broken: the mutations are too tame");
}

#[test]
fn mutated_indices_are_read_or_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.safetensors.index.json");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus/checkpoint");
    std::fs::copy(source.join("two-types.safetensors"), folder.path().join("s.safetensors"))
        .unwrap();
    let corpus = corpus("index");
    let mut random = Random(2);
    let mut accepted = 0;
    let mut rules: BTreeMap<Rule, usize> = BTreeMap::new();
    for round in 0..ROUNDS {
        let mut index = corpus[round % corpus.len()].clone();
        if round >= corpus.len() {
            mutate(&mut index, &mut random);
        }
        replace(&path, &index);
        let (result, peak_bytes) = open(folder.path());
        assert!(peak_bytes < bound_bytes(index.len() + 512), "round {round}: {peak_bytes} bytes");
        match result {
            Ok(checkpoint) => {
                accepted += 1;
                assert!(serde_json::from_slice::<serde_json::Value>(&index).is_ok());
                assert_eq!(checkpoint.tensors().count(), 2, "round {round}");
            }
            Err(rule) => *rules.entry(rule).or_default() += 1,
        }
    }
    assert!(accepted > ROUNDS / 100, "only {accepted} were accepted: the mutations are too wild");
    assert!(rules.len() >= 8, "only {rules:?} were broken: the mutations are too tame");
}

/// A hundred failing loads leave what a single one leaves: nothing.
#[test]
#[cfg(target_os = "linux")]
fn failed_loads_leave_no_memory_maps_or_files() {
    let fixture = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/qwen3_5");
    let folder = tempfile::tempdir().unwrap();
    for name in ["config.json", "model.safetensors.index.json"]
        .into_iter()
        .map(str::to_owned)
        .chain((1..=3).map(|i| format!("model-{i:05}-of-00003.safetensors")))
    {
        std::fs::write(folder.path().join(&name), std::fs::read(fixture.join(&name)).unwrap())
            .unwrap();
    }
    // The last shard ends early: the others are mapped when it is found out.
    let last = folder.path().join("model-00003-of-00003.safetensors");
    let bytes = std::fs::read(&last).unwrap();
    std::fs::write(&last, &bytes[..bytes.len() - 2]).unwrap();
    let maps = || {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        maps.lines().filter(|l| l.contains(folder.path().to_str().unwrap())).count()
    };
    let files = || std::fs::read_dir("/proc/self/fd").unwrap().count();
    let attempt = || open(folder.path()).0.unwrap_err();
    attempt();
    let (files_before, held_before) = (files(), HELD_BYTES.get());
    for _ in 0..100 {
        assert_eq!(attempt(), Rule::DataInFile);
    }
    assert_eq!(HELD_BYTES.get(), held_before);
    assert_eq!(maps(), 0);
    // Other tests of this process open files of their own meanwhile.
    assert!(files() < files_before + 50);
    std::fs::write(&last, &bytes).unwrap();
    let checkpoint = open(folder.path()).0.unwrap();
    assert_eq!(maps(), 3);
    drop(checkpoint);
    assert_eq!(maps(), 0);
}
