//! How fast the device at hand reads its memory right now.

use crate::backend::DeviceKind;
use crate::backend::cuda::probe::ReadRate;
use memmap2::MmapMut;
use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Bytes of the buffer; several times the last-level cache of common processors.
const BUFFER_BYTES: usize = 128 << 20;

/// A stretch is this part of the buffer.
const STRETCHES_PER_PASS: usize = 4;

/// Stretches of a look between two samples, some 50 ms.
const STRETCHES_BETWEEN_SAMPLES: usize = 32;

/// The memory that arms on a device read.
#[derive(Debug)]
pub enum Probe {
    Host(ReadProbe),
    Cuda(Box<ReadRate>),
}

impl Probe {
    /// A probe of the host with so many threads, or of the first CUDA device.
    ///
    /// # Errors
    /// A sentence: the device could not be asked.
    pub fn of(device: DeviceKind, threads: usize) -> Result<Probe, String> {
        match device {
            DeviceKind::Cpu => Ok(Probe::Host(ReadProbe::new(threads))),
            DeviceKind::Cuda => {
                ReadRate::open(0).map(|r| Probe::Cuda(Box::new(r))).map_err(|e| e.to_string())
            }
        }
    }

    /// A look between two samples: bytes per second.
    ///
    /// # Errors
    /// As [`Probe::of`].
    pub fn between_samples(&self) -> Result<f64, String> {
        match self {
            Probe::Host(probe) => Ok(probe.bytes_per_second(STRETCHES_BETWEEN_SAMPLES)),
            Probe::Cuda(probe) => probe.bytes_per_second().map_err(|e| e.to_string()),
        }
    }

    /// Whether there is a look behind this step of a quad of so many rounds A B B A. A host is looked at
    /// behind every step.
    ///
    /// On a GPU a step costs more when another process had the device before it, by 5% on an H200. The
    /// first B and the last A of a round always follow another arm, so a look before one of these costs
    /// neither arm more. There are four, as often before a B as before an A.
    pub fn looks_behind(&self, step: usize, rounds: usize) -> bool {
        match self {
            Probe::Host(_) => true,
            Probe::Cuda(_) => {
                let in_round = |round: usize| [4 * round, 4 * round + 2].contains(&step);
                in_round(rounds / 4) || in_round(3 * rounds / 4)
            }
        }
    }

    /// A look between two steps: bytes per second.
    ///
    /// # Errors
    /// As [`Probe::of`].
    pub fn between_steps(&self) -> Result<f64, String> {
        match self {
            Probe::Host(probe) => Ok(probe.bytes_per_second(1)),
            Probe::Cuda(_) => self.between_samples(),
        }
    }
}

/// The readings of a quad from its looks in order, in whole bytes per second: the rates over its first, its middle and its
/// last half. What disturbs single looks is in every half; what changes from one end to the other is not.
///
/// # Panics
/// Without looks.
pub(super) fn readings(looks: &[f64]) -> Vec<f64> {
    let half = looks.len().div_ceil(2);
    let rest = looks.len() - half;
    // Every look reads as many bytes, so the rate over several is their harmonic mean.
    let rate = |of: &[f64]| (of.len() as f64 / of.iter().map(|l| 1.0 / l).sum::<f64>()).round();
    [0, rest / 2, rest].map(|from| rate(&looks[from..from + half])).to_vec()
}

/// Reads a large buffer with every thread at once; on huge pages where the system grants them, as the
/// weights are.
#[derive(Debug)]
pub struct ReadProbe {
    bytes: MmapMut,
    threads: usize,
    /// Stretches read so far, which say where the next is.
    next: AtomicUsize,
}

impl ReadProbe {
    /// A probe of `threads` threads. The buffer is written once, so that its pages exist.
    ///
    /// # Panics
    /// When the system has no memory for the buffer.
    pub fn new(threads: usize) -> ReadProbe {
        let mut bytes = MmapMut::map_anon(BUFFER_BYTES).expect("memory for the bandwidth probe");
        #[cfg(target_os = "linux")]
        let _ = bytes.advise(memmap2::Advice::HugePage);
        for (i, word) in bytes.as_chunks_mut::<8>().0.iter_mut().enumerate() {
            *word = (i as u64).to_le_bytes();
        }
        ReadProbe { bytes, threads: threads.max(1), next: AtomicUsize::new(0) }
    }

    /// Bytes per second over so many stretches, 1 to 5 ms each, from where the last reading ended.
    ///
    /// # Panics
    /// Without stretches.
    pub fn bytes_per_second(&self, stretches: usize) -> f64 {
        assert!(stretches > 0, "a look has stretches");
        let words = self.bytes.as_chunks::<8>().0;
        let stretch = words.len() / STRETCHES_PER_PASS;
        let first = self.next.fetch_add(stretches, Ordering::Relaxed) % STRETCHES_PER_PASS;
        let start = Barrier::new(self.threads);
        let times: Vec<Vec<Duration>> = std::thread::scope(|scope| {
            let readers: Vec<_> = (0..self.threads)
                .map(|thread| {
                    let start = &start;
                    scope.spawn(move || {
                        let share = |of: &[[u8; 8]]| {
                            let at = |i: usize| of.len() * i / self.threads;
                            let (from, to) = (at(thread), at(thread + 1));
                            let begun = Instant::now();
                            std::hint::black_box(sum(&of[from..to]));
                            begun.elapsed()
                        };
                        words
                            .chunks_exact(stretch)
                            .cycle()
                            .skip(first)
                            .take(stretches)
                            .map(|stretch| {
                                start.wait();
                                share(stretch)
                            })
                            .collect()
                    })
                })
                .collect();
            readers.into_iter().map(|r| r.join().unwrap_or_default()).collect()
        });
        // A stretch is read when its slowest thread is done.
        let slowest =
            |i: usize| times.iter().filter_map(|t: &Vec<Duration>| t.get(i)).max().copied();
        let all: Duration = (0..stretches).filter_map(slowest).sum();
        (stretch * 8 * stretches) as f64 / all.as_secs_f64()
    }
}

/// Eight independent sums, which the compiler keeps in vector registers.
fn sum(words: &[[u8; 8]]) -> u64 {
    let mut sums = [0u64; 8];
    for chunk in words.chunks_exact(8) {
        for (s, w) in sums.iter_mut().zip(chunk) {
            *s = s.wrapping_add(u64::from_le_bytes(*w));
        }
    }
    sums.iter().fold(0, |a, s| a.wrapping_add(*s))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_is_read() {
        let words: Vec<[u8; 8]> = (0..800u64).map(u64::to_le_bytes).collect();
        assert_eq!(sum(&words), 800 * 799 / 2);
    }

    #[test]
    fn readings_are_the_rates_of_three_halves() {
        // A quarter of the time at 1, a half at 2, a quarter at 4 bytes per second.
        let looks = [1.0, 1.0, 2.0, 2.0, 2.0, 2.0, 4.0, 4.0].map(|l| l * 3e9);
        assert_eq!(readings(&looks), [4e9, 6e9, 8e9]);
        assert_eq!(readings(&[5.0]), [5.0; 3]);
        assert_eq!(readings(&[2.0, 2.0, 2.0, 8.0, 8.0]), [2.0, 3.0, 4.0]);
    }

    #[test]
    fn the_buffer_is_gone_round() {
        let probe = ReadProbe::new(1);
        for (stretches, next) in [(1, 1), (2, 3), (6, 1)] {
            probe.bytes_per_second(stretches);
            assert_eq!(probe.next.load(Ordering::Relaxed) % STRETCHES_PER_PASS, next);
        }
    }

    #[test]
    fn a_reading_is_a_plausible_bandwidth() {
        let reading = ReadProbe::new(2).bytes_per_second(4);
        // From an unoptimised build on a busy machine to a large server.
        assert!((1e6..5e12).contains(&reading), "{reading:e}");
    }
}
