//! The lines of `samples.jsonl`: what was measured, in the order it was measured.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// One line of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "line", rename_all = "snake_case", deny_unknown_fields)]
pub enum Line {
    /// Fresh worker processes are loaded, warm and have run every workload untimed.
    Launch(Launch),
    /// Four timed samples and the bandwidth readings around them.
    Quad(QuadLine),
    /// The launch is over; its workers have reported their memory.
    LaunchEnd(LaunchEnd),
}

/// The start of a launch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Launch {
    pub launch: u32,
    /// Milliseconds from starting the processes to the end of warm-up.
    pub start_ms: f64,
    pub arms: BTreeMap<String, LaunchedArm>,
}

/// One worker process.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LaunchedArm {
    /// Ids of the manifest, by block.
    pub ids: BTreeMap<String, String>,
    /// Digest of the tokens of the untimed run, one per sweep point.
    pub tokens: Vec<String>,
}

/// The samples of an A B B A quad.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct QuadLine {
    pub launch: u32,
    /// Index into the sweep points of the plan.
    pub point: usize,
    /// The candidate measured against the baseline.
    pub arm: String,
    /// Samples in the order measured: A, B, B, A.
    pub samples: [Sample; 4],
    /// Read bandwidth before, in the middle of and after the four samples.
    pub bandwidth_bytes_per_second: Vec<f64>,
}

/// One timed run of the workload.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sample {
    /// The prompt and the selection of the first token.
    pub prefill_ms: f64,
    /// All single-token steps together.
    pub decode_ms: f64,
    /// Digest of the tokens produced.
    pub tokens: String,
}

impl Sample {
    /// Whether both times are finite and positive.
    pub fn is_timed(&self) -> bool {
        [self.prefill_ms, self.decode_ms].iter().all(|ms| ms.is_finite() && *ms > 0.0)
    }
}

/// The end of a launch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LaunchEnd {
    pub launch: u32,
    /// Peak resident memory of every arm's process; absent where the system does not say.
    pub host_bytes: BTreeMap<String, u64>,
    /// Throttling events of the processors during the launch; `None` where they are not counted.
    pub throttle_events: Option<u64>,
}

/// The two arms of a quad.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Slot {
    A,
    B,
}

impl Slot {
    /// The order within a quad.
    pub const QUAD: [Slot; 4] = [Slot::A, Slot::B, Slot::B, Slot::A];
}
