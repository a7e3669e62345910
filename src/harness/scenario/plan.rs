//! The plan of a run: everything that decides what is measured and how it is judged.

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
    /// Workloads, in sweep order.
    pub points: Vec<Point>,
    /// Untimed runs of every workload before the first timed one, in every process.
    pub warmup: u32,
    pub looks: LookPlan,
    pub metrics: Vec<Metric>,
    pub rules: Vec<Rule>,
}

impl Plan {
    /// Every series of quads: a point (by index) and a candidate.
    pub fn series(&self) -> impl Iterator<Item = (usize, &str)> {
        (0..self.points.len())
            .flat_map(|point| self.candidates.iter().map(move |arm| (point, arm.as_str())))
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
