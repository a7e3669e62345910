//! The plan of a run: everything that decides what is measured and how it is judged.

use super::spec::{ArmKind, BASELINE, ScenarioFile, ScenarioSpec, Turn};
use super::{Metric, Point, Rule, Slot};
use crate::harness::stats::{LookPlan, MAX_DROPPED_SHARE};
use serde::{Deserialize, Serialize};

/// A scenario expanded for the device at hand. Recorded, so that a decision can be recomputed
/// from a record alone.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    pub scenario: String,
    /// The arm that the others are compared with.
    pub baseline: String,
    pub candidates: Vec<String>,
    /// Live peers: measured against the baseline, never decided on.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub peers: Vec<String>,
    /// Workloads, in sweep order.
    pub points: Vec<Point>,
    /// Untimed runs of every workload before the first timed one, in every process.
    pub warmup: u32,
    /// What an arm runs before it is the other's turn.
    #[serde(default, skip_serializing_if = "Turn::is_sample")]
    pub turn: Turn,
    pub looks: LookPlan,
    pub metrics: Vec<Metric>,
    pub rules: Vec<Rule>,
}

impl Plan {
    /// The plan of a scenario.
    pub fn of(file: &ScenarioFile) -> Plan {
        let spec = &file.spec;
        let quads = spec.measure.quads.value.to_vec();
        let quads_per_launch = quads[0] / spec.measure.launches.value;
        Plan {
            scenario: file.name().to_owned(),
            baseline: BASELINE.to_owned(),
            candidates: named(file, ArmKind::Engine).filter(|n| n != BASELINE).collect(),
            peers: named(file, ArmKind::Peer).collect(),
            points: points(spec),
            warmup: spec.measure.warmup.value,
            turn: spec.measure.turn,
            looks: LookPlan { quads, quads_per_launch },
            metrics: spec.measure.metrics.to_vec(),
            rules: spec.admit_when.value.all.clone(),
        }
    }

    /// Every arm that decides, the baseline first.
    pub fn arms(&self) -> impl Iterator<Item = &str> {
        std::iter::once(&self.baseline).chain(&self.candidates).map(String::as_str)
    }

    /// Every series of quads: a point (by index) and a candidate.
    pub fn series(&self) -> impl Iterator<Item = (usize, &str)> {
        (0..self.points.len())
            .flat_map(|point| self.candidates.iter().map(move |arm| (point, arm.as_str())))
    }

    /// Every series of quads of live peers: a point (by index) and a peer.
    pub fn peer_series(&self) -> impl Iterator<Item = (usize, &str)> {
        (0..self.points.len())
            .flat_map(|point| self.peers.iter().map(move |arm| (point, arm.as_str())))
    }

    /// Whether the arm is a live peer.
    pub fn is_peer(&self, arm: &str) -> bool {
        self.peers.iter().any(|p| p == arm)
    }

    /// The arm that runs in a slot of a quad of `candidate`.
    pub fn arm<'a>(&'a self, slot: Slot, candidate: &'a str) -> &'a str {
        match slot {
            Slot::A => &self.baseline,
            Slot::B => candidate,
        }
    }

    /// The rules about a candidate at a point.
    pub fn rules_for<'a>(&'a self, arm: &'a str, point: Point) -> impl Iterator<Item = &'a Rule> {
        self.rules.iter().filter(move |r| r.applies(arm, point))
    }

    /// Quads of one series if the run goes to its last look.
    pub fn most_quads(&self) -> usize {
        self.looks.quads.last().copied().unwrap_or(0)
    }

    /// The most quads that may be dropped over all series: [`MAX_DROPPED_SHARE`] of those
    /// measured by the last look.
    pub fn dropped_limit(&self) -> usize {
        let kept = (self.most_quads() * self.series().count()) as f64;
        (kept * MAX_DROPPED_SHARE / (1.0 - MAX_DROPPED_SHARE)).floor() as usize
    }
}

fn named(file: &ScenarioFile, kind: ArmKind) -> impl Iterator<Item = String> {
    file.arms().iter().filter(move |(_, arm)| arm.kind() == kind).map(|(name, _)| name.clone())
}

/// The workloads of a scenario, in sweep order.
pub(super) fn points(spec: &ScenarioSpec) -> Vec<Point> {
    let workload = &spec.workload.value;
    let axis = |values: &[u32], single: u32| {
        if values.is_empty() { vec![single] } else { values.to_vec() }
    };
    let sweep = spec.sweep.as_ref().map(|s| s.value.clone()).unwrap_or_default();
    let decode = axis(&sweep.decode_tokens, workload.decode_tokens);
    let sequences = axis(&sweep.sequences, workload.sequences);
    let mut points = Vec::new();
    for prompt_tokens in axis(&sweep.prompt_tokens, workload.prompt_tokens) {
        for &decode_tokens in &decode {
            for &sequences in &sequences {
                points.push(Point { prompt_tokens, decode_tokens, sequences });
            }
        }
    }
    points
}
