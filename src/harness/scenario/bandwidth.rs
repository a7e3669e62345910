//! How fast the device at hand reads its memory right now.

use crate::backend::DeviceKind;
use crate::backend::cuda::probe::ReadRate;
use memmap2::MmapMut;
use std::ops::Range;
use std::sync::Barrier;
use std::time::{Duration, Instant};

/// Bytes of the buffer; several times the last-level cache of common processors.
const BUFFER_BYTES: usize = 128 << 20;

/// A stretch is this part of the buffer.
const STRETCHES_PER_PASS: usize = 4;

/// Stretches of a reading that is taken at once, some 100 ms; the fastest counts, because whatever disturbs one
/// only slows it. Beside other tenants the rate changes within milliseconds, and the fastest of a few
/// differs from reading to reading although nothing lasting has changed.
const STRETCHES: usize = 64;

/// Stretches of a reading whose stretches stand between the steps that it is about.
const SPREAD_STRETCHES: usize = 16;

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

    /// One reading, taken at once: bytes per second.
    ///
    /// # Errors
    /// As [`Probe::of`].
    pub fn bytes_per_second(&self) -> Result<f64, String> {
        match self {
            Probe::Host(probe) => Ok(probe.fastest(0..STRETCHES)),
            Probe::Cuda(probe) => probe.bytes_per_second().map_err(|e| e.to_string()),
        }
    }

    /// What belongs behind step `step` of `steps` of a reading that is spread over them: bytes per second,
    /// `None` if nothing. The reading is the largest of all.
    ///
    /// # Errors
    /// As [`Probe::of`].
    pub fn behind_step(&self, step: usize, steps: usize) -> Result<Option<f64>, String> {
        match self {
            Probe::Host(probe) => {
                let from = |step: usize| SPREAD_STRETCHES * step / steps;
                let stretches = from(step)..from(step + 1);
                Ok((!stretches.is_empty()).then(|| probe.fastest(stretches)))
            }
            // A GPU's rate does not change between steps: one reading behind the last.
            Probe::Cuda(_) if step + 1 < steps => Ok(None),
            Probe::Cuda(_) => self.bytes_per_second().map(Some),
        }
    }
}

/// Reads a large buffer with every thread at once; on huge pages where the system grants them, as the
/// weights are.
#[derive(Debug)]
pub struct ReadProbe {
    bytes: MmapMut,
    threads: usize,
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
        ReadProbe { bytes, threads: threads.max(1) }
    }

    /// Bytes per second of the fastest of these stretches, which go round the buffer; 1 to 5 ms each.
    ///
    /// # Panics
    /// Without stretches.
    pub fn fastest(&self, stretches: Range<usize>) -> f64 {
        assert!(!stretches.is_empty(), "a reading has stretches");
        let words = self.bytes.as_chunks::<8>().0;
        let stretch = words.len() / STRETCHES_PER_PASS;
        let start = Barrier::new(self.threads);
        let times: Vec<Vec<Duration>> = std::thread::scope(|scope| {
            let readers: Vec<_> = (0..self.threads)
                .map(|thread| {
                    let (start, stretches) = (&start, &stretches);
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
                            .skip(stretches.start % STRETCHES_PER_PASS)
                            .take(stretches.len())
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
        let fastest = (0..stretches.len()).filter_map(slowest).min().unwrap_or(Duration::MAX);
        (stretch * 8) as f64 / fastest.as_secs_f64()
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
    fn a_spread_reading_has_all_its_stretches() {
        let probe = Probe::Host(ReadProbe::new(1));
        for steps in [1, 3, 16, 40] {
            let taken = (0..steps).filter(|i| probe.behind_step(*i, steps).unwrap().is_some());
            assert_eq!(taken.count(), steps.min(SPREAD_STRETCHES), "{steps} steps");
        }
    }

    #[test]
    fn a_reading_is_a_plausible_bandwidth() {
        let reading = ReadProbe::new(2).fastest(3..7);
        // From an unoptimised build on a busy machine to a large server.
        assert!((1e6..5e12).contains(&reading), "{reading:e}");
    }
}
