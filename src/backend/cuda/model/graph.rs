//! Decode steps captured as graphs, by bucket of rows and of context.
//!
//! A graph launches over upper bounds; rows past the step's own exit, key blocks past a row's own
//! end too, so a bucket changes no bits. It is captured when it comes for the second time: by then
//! every kernel is loaded, and gates that run a shape more than once have compared both ways.

use crate::backend::cuda::error::Doing;
use crate::backend::cuda::{CudaError, Device};
use cudarc::driver::{CudaGraph, sys};
use std::collections::HashMap;

/// Row buckets.
const ROW_BUCKETS: [usize; 7] = [1, 2, 4, 8, 16, 32, 64];

/// What a captured step is good for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Bucket {
    pub(super) rows: usize,
    /// Key blocks of the longest past.
    pub(super) blocks: usize,
}

impl Bucket {
    /// The smallest bucket that holds a step of so many rows and key blocks.
    pub(super) fn of(rows: usize, blocks: usize) -> Option<Bucket> {
        let rows = ROW_BUCKETS.into_iter().find(|b| *b >= rows)?;
        Some(Bucket { rows, blocks: blocks.next_power_of_two() })
    }
}

enum Entry {
    Seen,
    Captured(Captured),
}

/// A graph that may move between threads.
struct Captured(CudaGraph);

// SAFETY: the driver allows a graph to be used from any thread, one at a time; it is reached only
// through the model's lock.
unsafe impl Send for Captured {}

/// Captured graphs; all of them hold the addresses of the buffers at their capture.
#[derive(Default)]
pub(super) struct Graphs {
    entries: HashMap<Bucket, Entry>,
    /// Launches of graphs so far.
    replayed: u64,
}

impl std::fmt::Debug for Graphs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Graphs({} buckets)", self.entries.len())
    }
}

/// How a bucket is to be executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum How {
    /// Launch by launch.
    Eager,
    /// Capture, then replay.
    Capture,
    Replay,
}

impl Graphs {
    /// Launches of graphs so far.
    pub(super) fn replayed(&self) -> u64 {
        self.replayed
    }

    /// Forgets all: addresses have moved.
    pub(super) fn clear(&mut self) {
        self.entries.clear();
    }

    /// How to execute a bucket, and notes that it was met.
    pub(super) fn how(&mut self, bucket: Bucket) -> How {
        match self.entries.get(&bucket) {
            None => {
                self.entries.insert(bucket, Entry::Seen);
                How::Eager
            }
            Some(Entry::Seen) => How::Capture,
            Some(Entry::Captured(_)) => How::Replay,
        }
    }

    /// Captures what `launches` puts into the stream.
    pub(super) fn capture(
        &mut self,
        device: &Device,
        bucket: Bucket,
        launches: impl FnOnce() -> Result<(), CudaError>,
    ) -> Result<(), CudaError> {
        let stream = device.stream();
        stream
            .begin_capture(sys::CUstreamCaptureMode_enum::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL)
            .doing("starting to capture a step")?;
        let launched = launches();
        let flags =
            sys::CUgraphInstantiate_flags_enum::CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH;
        let graph = stream.end_capture(flags).doing("capturing a step");
        launched?;
        let graph = graph?.ok_or_else(|| CudaError::Driver {
            doing: "capturing a step".into(),
            code: "no graph came of it".into(),
        })?;
        self.entries.insert(bucket, Entry::Captured(Captured(graph)));
        Ok(())
    }

    /// Puts a captured step into the stream.
    pub(super) fn replay(&mut self, bucket: Bucket) -> Result<(), CudaError> {
        match self.entries.get(&bucket) {
            Some(Entry::Captured(graph)) => {
                graph.0.launch().doing("launching a captured step")?;
                self.replayed += 1;
                Ok(())
            }
            _ => Err(CudaError::Driver {
                doing: "launching a captured step".into(),
                code: "it was not captured".into(),
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_hold_what_they_are_for() {
        assert_eq!(Bucket::of(1, 1), Some(Bucket { rows: 1, blocks: 1 }));
        assert_eq!(Bucket::of(3, 5), Some(Bucket { rows: 4, blocks: 8 }));
        assert_eq!(Bucket::of(64, 512), Some(Bucket { rows: 64, blocks: 512 }));
        assert_eq!(Bucket::of(65, 1), None);
    }

    #[test]
    fn a_bucket_is_captured_when_it_returns() {
        let mut graphs = Graphs::default();
        let bucket = Bucket { rows: 1, blocks: 1 };
        assert_eq!(graphs.how(bucket), How::Eager);
        assert_eq!(graphs.how(bucket), How::Capture);
        graphs.clear();
        assert_eq!(graphs.how(bucket), How::Eager);
        assert!(graphs.replay(bucket).is_err());
    }
}
