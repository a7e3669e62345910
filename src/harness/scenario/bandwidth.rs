//! How fast this machine reads memory right now.

use std::sync::Barrier;
use std::time::{Duration, Instant};

/// Bytes read by one pass; several times the last-level cache of common processors.
const BUFFER_BYTES: usize = 128 << 20;

/// Passes of one reading; the fastest counts, because whatever disturbs a pass only slows it.
const PASSES: usize = 3;

/// Reads a large buffer with every thread at once.
#[derive(Debug)]
pub struct ReadProbe {
    words: Vec<u64>,
    threads: usize,
}

impl ReadProbe {
    /// A probe of `threads` threads. The buffer is written once, so that its pages exist.
    pub fn new(threads: usize) -> ReadProbe {
        let words = (0..(BUFFER_BYTES / 8) as u64).collect();
        ReadProbe { words, threads: threads.max(1) }
    }

    /// Bytes per second of the fastest of three passes over the buffer: 15 to 60 ms.
    pub fn bytes_per_second(&self) -> f64 {
        let fastest = (0..PASSES).map(|_| self.pass()).min().unwrap_or(Duration::MAX);
        (self.words.len() * 8) as f64 / fastest.as_secs_f64()
    }

    /// The time until the slowest thread has read its share.
    fn pass(&self) -> Duration {
        let start = Barrier::new(self.threads);
        let share = self.words.len().div_ceil(self.threads);
        std::thread::scope(|scope| {
            let readers: Vec<_> = self
                .words
                .chunks(share)
                .map(|words| {
                    let start = &start;
                    scope.spawn(move || {
                        start.wait();
                        let begun = Instant::now();
                        std::hint::black_box(sum(words));
                        begun.elapsed()
                    })
                })
                .collect();
            readers.into_iter().filter_map(|r| r.join().ok()).max().unwrap_or(Duration::MAX)
        })
    }
}

/// Eight independent sums, which the compiler keeps in vector registers.
fn sum(words: &[u64]) -> u64 {
    let mut sums = [0u64; 8];
    for chunk in words.chunks_exact(8) {
        for (s, w) in sums.iter_mut().zip(chunk) {
            *s = s.wrapping_add(*w);
        }
    }
    sums.iter().fold(0, |a, s| a.wrapping_add(*s))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_is_read() {
        let words: Vec<u64> = (0..800).collect();
        assert_eq!(sum(&words), 800 * 799 / 2);
    }

    #[test]
    fn a_reading_is_a_plausible_bandwidth() {
        let reading = ReadProbe::new(2).bytes_per_second();
        // From an unoptimised build on a busy machine to a large server.
        assert!((1e6..5e12).contains(&reading), "{reading:e}");
    }
}
