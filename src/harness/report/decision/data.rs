//! What the sections of the page share.

use super::super::plot;
use crate::harness::scenario::{
    Comparison, Line, Metric, Point, QuadLine, ScenarioRun, Slot, Verdict, is_dropped,
};
use plotters::style::RGBColor;

/// A record, its verdict, and the ways to look at both.
pub(in crate::harness::report) struct Data<'a> {
    pub(in crate::harness::report) record: &'a ScenarioRun,
    pub(in crate::harness::report) verdict: &'a Verdict,
    pub(super) quads: Vec<&'a QuadLine>,
}

/// One timed value in run order.
#[derive(Clone, Copy, Debug)]
pub(super) struct Timed {
    /// Position in the order of measuring.
    pub(super) order: usize,
    pub(super) launch: u32,
    /// Index of the arm: 0 for the baseline.
    pub(super) arm: usize,
    pub(super) value: f64,
    pub(super) dropped: bool,
}

impl<'a> Data<'a> {
    pub(in crate::harness::report) fn new(
        record: &'a ScenarioRun,
        verdict: &'a Verdict,
    ) -> Data<'a> {
        let quads = record
            .lines
            .iter()
            .filter_map(|l| if let Line::Quad(q) = l { Some(q) } else { None })
            .filter(|q| !record.run.plan.is_peer(&q.arm))
            .collect();
        Data { record, verdict, quads }
    }

    /// Arm names, the baseline first.
    pub(in crate::harness::report) fn arms(&self) -> Vec<&'a str> {
        self.record.run.plan.arms().collect()
    }

    pub(super) fn color(&self, arm: &str) -> RGBColor {
        plot::arm_color(self.arms().iter().position(|a| *a == arm).unwrap_or(0))
    }

    /// The metric that plots show: that of the first rule.
    pub(super) fn main_metric(&self) -> Metric {
        let plan = &self.record.run.plan;
        let of_samples = |m: &Metric| !m.is_per_launch();
        plan.rules
            .iter()
            .map(|r| r.ratio)
            .find(of_samples)
            .or_else(|| plan.metrics.iter().copied().find(of_samples))
            .unwrap_or(Metric::DecodeTokensPerSecond)
    }

    /// The comparison that the page leads with.
    pub(super) fn headline(&self) -> Option<&'a Comparison> {
        let ruled = |c: &&Comparison| !c.rules.is_empty();
        self.verdict.comparisons.iter().find(ruled).or(self.verdict.comparisons.first())
    }

    /// Every sample of a metric at a point, in run order.
    pub(super) fn timed(&self, metric: Metric, point: usize) -> Vec<Timed> {
        let (arms, place) = (self.arms(), self.record.run.plan.points[point]);
        let mut timed = Vec::new();
        for quad in self.quads.iter().filter(|q| q.point == point) {
            let dropped = is_dropped(quad);
            for (slot, sample) in Slot::QUAD.iter().zip(&quad.samples) {
                let name = self.record.run.plan.arm(*slot, &quad.arm);
                let arm = arms.iter().position(|a| *a == name).unwrap_or(0);
                if let Some(value) = metric.of(sample, place) {
                    let (order, launch) = (timed.len(), quad.launch);
                    timed.push(Timed { order, launch, arm, value: metric.shown(value), dropped });
                }
            }
        }
        timed
    }

    /// Kept values of one arm, sorted.
    pub(in crate::harness::report) fn sorted(
        &self,
        metric: Metric,
        point: usize,
        arm: usize,
    ) -> Vec<f64> {
        let mut values: Vec<f64> = if metric.is_per_launch() {
            let name = self.arms()[arm];
            self.record
                .lines
                .iter()
                .filter_map(|line| line.per_launch(metric, name))
                .map(|(_, value)| metric.shown(value))
                .collect()
        } else {
            self.timed(metric, point)
                .into_iter()
                .filter(|t| t.arm == arm && !t.dropped)
                .map(|t| t.value)
                .collect()
        };
        values.sort_unstable_by(f64::total_cmp);
        values
    }

    /// The median reading of memory's rate, in bytes per second.
    pub(super) fn bandwidth(&self) -> Option<f64> {
        let quads = self.quads.iter().flat_map(|q| &q.bandwidth_bytes_per_second);
        let mut readings: Vec<f64> = quads.copied().collect();
        readings.sort_unstable_by(f64::total_cmp);
        readings.get(readings.len() / 2).copied()
    }

    /// `at prompt_tokens=128,…` where the scenario sweeps, else nothing.
    pub(super) fn place(&self, point: Point) -> String {
        if self.record.run.plan.points.len() > 1 { format!(" at {point}") } else { String::new() }
    }
}
