//! The lines of `samples.jsonl`: what was measured, in the order it was measured.

use super::{DeviceReading, Metric};
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

impl Line {
    /// The launch, and a per-launch metric of an arm, where this line says it.
    pub fn per_launch(&self, metric: Metric, arm: &str) -> Option<(u32, f64)> {
        match (self, metric) {
            (Line::LaunchEnd(end), Metric::HostBytes) => {
                end.host_bytes.get(arm).map(|bytes| (end.launch, *bytes as f64))
            }
            (Line::Launch(start), Metric::ReadyMs) => {
                start.arms.get(arm)?.ready_ms.map(|ms| (start.launch, ms))
            }
            _ => None,
        }
    }
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
    /// Milliseconds to a loaded engine; absent for peers and in older records.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready_ms: Option<f64>,
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
    /// Read bandwidth over the first, the middle and the last half of the quad (by builds before b514cf3:
    /// before, in the middle of and after the four samples).
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
    /// What the GPU said of itself; absent on the CPU and in older records.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<DeviceReading>,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_metric_of_a_launch_is_on_one_line() {
        let arm = |ready_ms| LaunchedArm { ids: BTreeMap::new(), tokens: Vec::new(), ready_ms };
        let arms = [("a".to_owned(), arm(Some(700.0))), ("peer".to_owned(), arm(None))].into();
        let start = Line::Launch(Launch { launch: 3, start_ms: 900.0, arms });
        assert_eq!(start.per_launch(Metric::ReadyMs, "a"), Some((3, 700.0)));
        assert_eq!(start.per_launch(Metric::ReadyMs, "peer"), None);
        assert_eq!(start.per_launch(Metric::HostBytes, "a"), None);
        let host_bytes = [("a".to_owned(), 5)].into();
        let throttle_events = None;
        let end = LaunchEnd { launch: 3, host_bytes, throttle_events, device: None };
        let end = Line::LaunchEnd(end);
        assert_eq!(end.per_launch(Metric::HostBytes, "a"), Some((3, 5.0)));
        assert_eq!(end.per_launch(Metric::ReadyMs, "a"), None);
    }
}
