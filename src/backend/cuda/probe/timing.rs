//! Timing of device work: graphs of launches, replayed.

use crate::backend::cuda::error::Doing;
use crate::backend::cuda::{CudaError, Device};
use cudarc::driver::{CudaGraph, sys};
use serde::Serialize;

/// Times of one launch, each the mean over a graph replay.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Timing {
    /// The median.
    pub time_us: f64,
    pub fastest_us: f64,
    pub slowest_us: f64,
    /// In the order measured.
    pub samples_us: Vec<f64>,
}

/// A captured sequence of launches.
pub(in crate::backend::cuda) struct Captured<'a> {
    device: &'a Device,
    graph: CudaGraph,
}

impl<'a> Captured<'a> {
    /// Captures what `launch` puts into the device's stream.
    pub(in crate::backend::cuda) fn new(
        device: &'a Device,
        launch: impl FnOnce() -> Result<(), CudaError>,
    ) -> Result<Captured<'a>, CudaError> {
        let stream = device.stream();
        stream
            .begin_capture(sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL)
            .doing("beginning a capture")?;
        let launched = launch();
        let graph = stream.end_capture(sys::CUgraphInstantiate_flags(0)).doing("ending a capture");
        launched?;
        let graph = graph?.ok_or_else(|| CudaError::Driver {
            doing: "capturing launches".into(),
            code: "the graph is empty".into(),
        })?;
        Ok(Captured { device, graph })
    }

    /// Runs the sequence once.
    pub(in crate::backend::cuda) fn run(&self) -> Result<(), CudaError> {
        self.graph.launch().doing("replaying a graph")
    }

    /// Two replays to warm up, then `replays` timed ones; the sequence counts as `launches`.
    pub(in crate::backend::cuda) fn time(
        &self,
        replays: usize,
        launches: usize,
    ) -> Result<Timing, CudaError> {
        for _ in 0..2 {
            self.run()?;
        }
        self.device.synchronize()?;
        let event = || {
            let context = self.device.stream().context();
            context.new_event(Some(sys::CUevent_flags::CU_EVENT_DEFAULT)).doing("making an event")
        };
        let mut samples_us = Vec::new();
        for _ in 0..replays {
            let (start, end) = (event()?, event()?);
            start.record(self.device.stream()).doing("recording an event")?;
            self.run()?;
            end.record(self.device.stream()).doing("recording an event")?;
            end.synchronize().doing("waiting for an event")?;
            let elapsed_ms = start.elapsed_ms(&end).doing("reading events")?;
            samples_us.push(f64::from(elapsed_ms) * 1e3 / launches as f64);
        }
        let mut sorted = samples_us.clone();
        sorted.sort_by(f64::total_cmp);
        Ok(Timing {
            time_us: sorted[sorted.len() / 2],
            fastest_us: sorted[0],
            slowest_us: sorted[sorted.len() - 1],
            samples_us,
        })
    }
}
