//! The decision: a pure function of the plan and of the recorded lines.

use super::device::slowdown;
use super::{Decision, Line, Metric, Plan, Point, QuadLine, Rule, Slot};
use crate::harness::stats::{
    Estimate, Launched, MAX_DROPPED_SHARE, MAX_READING_SPREAD, Quad, Side, estimate, judge,
    reading_spread,
};
use serde::Serialize;
use std::collections::BTreeMap;

/// What a run came to.
#[derive(Clone, Debug, Serialize)]
pub struct Verdict {
    pub decision: Decision,
    /// Looks taken at the data, the deciding one included.
    pub looks: usize,
    /// Sentences that led to the decision, the most important first.
    pub reasons: Vec<String>,
    /// Every measured ratio at the last look taken.
    pub comparisons: Vec<Comparison>,
    /// Quads measured, the dropped ones included.
    pub quads: usize,
    /// Quads dropped because their bandwidth readings differed.
    pub dropped: usize,
}

impl Default for Verdict {
    /// Nothing was measured.
    fn default() -> Verdict {
        Verdict {
            decision: Decision::Invalid,
            looks: 0,
            reasons: Vec::new(),
            comparisons: Vec::new(),
            quads: 0,
            dropped: 0,
        }
    }
}

/// A candidate's ratio to the baseline in one metric at one point.
#[derive(Clone, Debug, Serialize)]
pub struct Comparison {
    pub arm: String,
    pub point: Point,
    pub metric: Metric,
    pub estimate: Estimate,
    /// The rules about this ratio and what the interval says of each.
    pub rules: Vec<(Rule, Side)>,
}

/// Whether a quad's readings are too far apart for it to count.
pub fn is_dropped(quad: &QuadLine) -> bool {
    reading_spread(&quad.bandwidth_bytes_per_second) > MAX_READING_SPREAD
}

/// Decides from everything recorded so far.
///
/// `None` while the first look is not reached or a look left the question open and a further look
/// is planned: the run goes on.
pub fn decide(plan: &Plan, lines: &[Line], finished: bool) -> Option<Verdict> {
    let facts = Facts::of(plan, lines);
    let invalid = facts.refusals(plan);
    if !invalid.is_empty() {
        return Some(facts.verdict(plan, Decision::Invalid, 0, invalid));
    }
    for (look, &wanted) in plan.looks.quads.iter().enumerate() {
        let last = look + 1 == plan.looks.quads.len();
        if facts.fewest_kept(plan) < wanted {
            if !finished {
                return None;
            }
            let reason = facts.shortage(plan, wanted);
            return Some(facts.verdict(plan, Decision::Invalid, look, vec![reason]));
        }
        let comparisons = facts.comparisons(plan, wanted);
        let weighed = match facts.too_many_dropped(plan, wanted) {
            Some(reason) => Err(vec![reason]),
            None => weigh(plan, &comparisons),
        };
        match weighed {
            Ok((decision, reasons)) if last || decision != Decision::Inconclusive => {
                return Some(facts.complete(decision, look + 1, reasons, comparisons));
            }
            Err(reasons) if last => {
                return Some(facts.complete(Decision::Invalid, look + 1, reasons, comparisons));
            }
            // Open, or the ratio drifted or too much was dropped so far: more data may settle it.
            _ => {}
        }
    }
    None
}

/// Admit, decline or inconclusive by the intervals; `Err` where a ratio that a rule rests on
/// drifted.
fn weigh(plan: &Plan, comparisons: &[Comparison]) -> Result<(Decision, Vec<String>), Vec<String>> {
    let ruled = || comparisons.iter().filter(|c| !c.rules.is_empty());
    let drifted: Vec<String> = ruled()
        .filter(|c| c.estimate.drifted())
        .map(|c| {
            format!(
                "drift beyond noise: the {} ratio of {} changed by {:+.1}% during the run (p = {:.1e})",
                c.metric,
                c.arm,
                100.0 * c.estimate.drift.total.exp_m1(),
                c.estimate.drift.p
            )
        })
        .collect();
    if !drifted.is_empty() {
        return Err(drifted);
    }
    let of = |side: Side| -> Vec<String> {
        ruled()
            .flat_map(|c| c.rules.iter().filter(|r| r.1 == side).map(move |r| (c, &r.0)))
            .map(|(c, rule)| c.sentence(rule))
            .collect()
    };
    let (failed, mut open) = (of(Side::Below), of(Side::Open));
    // A rule without data is never fulfilled.
    let judged: usize = comparisons.iter().map(|c| c.rules.len()).sum();
    let planned = plan.series().map(|(p, arm)| plan.rules_for(arm, plan.points[p]).count()).sum();
    if judged < planned {
        open.push(format!("{} of {planned} rules have no data", planned - judged));
    }
    Ok(match (failed.is_empty(), open.is_empty()) {
        (false, _) => (Decision::Decline, failed),
        (true, false) => (Decision::Inconclusive, open),
        (true, true) => (Decision::Admit, of(Side::Above)),
    })
}

impl Comparison {
    /// `decode_tokens_per_second: ratio 1.31 [1.29, 1.33]; rule: …`.
    fn sentence(&self, rule: &Rule) -> String {
        let e = &self.estimate;
        let bounds = if e.lower.is_finite() {
            format!("[{:.3}, {:.3}]", e.lower.exp(), e.upper.exp())
        } else {
            format!("[no bound: {} data as {}]", e.data, e.datum)
        };
        format!(
            "{} at {}: {} ratio {:.3} {bounds}; rule: {rule}",
            self.arm,
            self.point,
            self.metric,
            e.log_ratio.exp(),
        )
    }
}

/// Ratios of a live peer to the baseline over every quad that counts, under no rule.
pub fn peer_comparisons(plan: &Plan, lines: &[Line], peer: &str) -> Vec<Comparison> {
    let facts = Facts::about(lines, |arm| arm == peer);
    let of = |point: usize, metric: Metric| {
        let data: Vec<Launched> = match metric.is_per_launch() {
            true => facts.per_launch(plan, peer, metric),
            false => facts.series(plan, point, peer, metric).collect(),
        };
        Some(Comparison {
            arm: peer.to_owned(),
            point: plan.points[point],
            metric,
            estimate: estimate(&data, plan.looks.alpha_per_look())?,
            rules: Vec::new(),
        })
    };
    (0..plan.points.len())
        .flat_map(|point| plan.metrics.iter().map(move |metric| (point, *metric)))
        .filter_map(|(point, metric)| of(point, metric))
        .collect()
}

/// What a rule says of a confidence interval of the log ratio: `Above` where it holds, `Below`
/// where it is broken.
fn apply(rule: &Rule, estimate: &Estimate) -> Side {
    let lower = rule.lower_bound_at_least.map(|t| judge(estimate.lower, estimate.upper, t.ln()));
    // An upper limit is a lower limit of the inverse ratio.
    let upper = rule.upper_bound_at_most.map(|t| judge(-estimate.upper, -estimate.lower, -t.ln()));
    let sides: Vec<Side> = [lower, upper].into_iter().flatten().collect();
    if sides.contains(&Side::Below) {
        Side::Below
    } else if !sides.is_empty() && sides.iter().all(|s| *s == Side::Above) {
        Side::Above
    } else {
        Side::Open
    }
}

/// The log ratios of the kept quads of one series, in run order.
pub(super) fn kept_series(
    plan: &Plan,
    lines: &[Line],
    point: usize,
    arm: &str,
    metric: Metric,
) -> Vec<Launched> {
    Facts::of(plan, lines).series(plan, point, arm, metric).collect()
}

/// Recorded lines by what they are about.
struct Facts<'a> {
    quads: Vec<&'a QuadLine>,
    lines: &'a [Line],
}

impl<'a> Facts<'a> {
    /// What decides: quads of live peers are no part of it.
    fn of(plan: &Plan, lines: &'a [Line]) -> Facts<'a> {
        Facts::about(lines, |arm| !plan.is_peer(arm))
    }

    fn about(lines: &'a [Line], wanted: impl Fn(&str) -> bool) -> Facts<'a> {
        let quads = lines
            .iter()
            .filter_map(|l| if let Line::Quad(q) = l { Some(q) } else { None })
            .filter(|q| wanted(&q.arm))
            .collect();
        Facts { quads, lines }
    }

    /// Reasons that make the run unusable whatever the ratios are.
    fn refusals(&self, plan: &Plan) -> Vec<String> {
        let mut reasons = Vec::new();
        let mut untimed: BTreeMap<(u32, &str), &[String]> = BTreeMap::new();
        let mut throttled = 0;
        for line in self.lines {
            match line {
                Line::Launch(l) => {
                    for (name, arm) in &l.arms {
                        untimed.insert((l.launch, name), &arm.tokens);
                    }
                }
                Line::LaunchEnd(l) => throttled += l.throttle_events.unwrap_or(0),
                Line::Quad(q) if plan.is_peer(&q.arm) => {}
                Line::Quad(q) => {
                    if q.samples.iter().any(|s| !s.is_timed()) {
                        reasons
                            .push(format!("a sample in launch {} has no positive time", q.launch));
                    }
                    for (slot, sample) in Slot::QUAD.iter().zip(&q.samples) {
                        let arm = plan.arm(*slot, &q.arm);
                        let expected = untimed.get(&(q.launch, arm)).and_then(|t| t.get(q.point));
                        if expected != Some(&sample.tokens) {
                            reasons.push(format!(
                                "a timed run of {arm} in launch {} produced other tokens ({}) than its untimed run ({})",
                                q.launch,
                                sample.tokens,
                                expected.map_or("none recorded", String::as_str)
                            ));
                        }
                    }
                }
            }
        }
        if throttled > 0 {
            reasons.push(format!("throttled clocks: {throttled} throttling events during the run"));
        }
        reasons.extend(slowdown(self.lines));
        let limit = plan.dropped_limit();
        let dropped = self.dropped();
        if dropped > limit {
            reasons.push(format!(
                "{dropped} of {} quads were dropped because their bandwidth readings differed by more than {:.0}%; at most {:.0}% may be",
                self.quads.len(),
                100.0 * MAX_READING_SPREAD,
                100.0 * MAX_DROPPED_SHARE
            ));
        }
        reasons.truncate(5);
        reasons
    }

    fn dropped(&self) -> usize {
        self.quads.iter().filter(|q| is_dropped(q)).count()
    }

    /// Why a look at the first `wanted` kept quads of every series decides nothing: more than
    /// [`MAX_DROPPED_SHARE`] of what was measured until then was dropped. Later quads do not count,
    /// so that a record says what the run saw.
    fn too_many_dropped(&self, plan: &Plan, wanted: usize) -> Option<String> {
        let (mut measured, mut dropped) = (0usize, 0usize);
        let mut kept: BTreeMap<(usize, &str), usize> = plan.series().map(|s| (s, 0)).collect();
        for quad in &self.quads {
            if kept.values().all(|k| *k >= wanted) {
                break;
            }
            measured += 1;
            if is_dropped(quad) {
                dropped += 1;
            } else if let Some(kept) = kept.get_mut(&(quad.point, quad.arm.as_str())) {
                *kept += 1;
            }
        }
        (dropped as f64 > MAX_DROPPED_SHARE * measured as f64).then(|| {
            format!(
                "{dropped} of {measured} quads were dropped because their bandwidth readings differed by more than {:.0}%; at most {:.0}% may be",
                100.0 * MAX_READING_SPREAD,
                100.0 * MAX_DROPPED_SHARE
            )
        })
    }

    fn kept(&self, point: usize, arm: &str) -> impl Iterator<Item = &'a QuadLine> {
        self.quads
            .iter()
            .copied()
            .filter(move |q| q.point == point && q.arm == arm && !is_dropped(q))
    }

    /// The log ratio of every kept quad of a series.
    fn series(
        &self,
        plan: &Plan,
        point: usize,
        arm: &str,
        metric: Metric,
    ) -> impl Iterator<Item = Launched> {
        let place = plan.points[point];
        self.kept(point, arm).filter_map(move |q| {
            let [a1, b1, b2, a2] = q.samples.each_ref().map(|s| metric.of(s, place));
            let quad = Quad { a1: a1?, b1: b1?, b2: b2?, a2: a2? };
            Some(Launched { launch: q.launch, log_ratio: quad.log_ratio()? })
        })
    }

    fn fewest_kept(&self, plan: &Plan) -> usize {
        plan.series().map(|(point, arm)| self.kept(point, arm).count()).min().unwrap_or(0)
    }

    fn shortage(&self, plan: &Plan, wanted: usize) -> String {
        format!("too few samples: {} usable quads of {wanted}", self.fewest_kept(plan))
    }

    /// Every ratio that the first `quads` kept quads of each series give.
    fn comparisons(&self, plan: &Plan, quads: usize) -> Vec<Comparison> {
        let mut comparisons = Vec::new();
        for (point, arm) in plan.series() {
            let place = plan.points[point];
            for &metric in &plan.metrics {
                let data: Vec<Launched> = if metric.is_per_launch() {
                    self.per_launch(plan, arm, metric)
                } else {
                    self.series(plan, point, arm, metric).take(quads).collect()
                };
                let Some(estimate) = estimate(&data, plan.looks.alpha_per_look()) else { continue };
                let rules = plan
                    .rules_for(arm, place)
                    .filter(|r| r.ratio == metric)
                    .map(|r| (r.clone(), apply(r, &estimate)))
                    .collect();
                comparisons.push(Comparison {
                    arm: arm.to_owned(),
                    point: place,
                    metric,
                    estimate,
                    rules,
                });
            }
        }
        comparisons
    }

    fn per_launch(&self, plan: &Plan, arm: &str, metric: Metric) -> Vec<Launched> {
        self.lines
            .iter()
            .filter_map(|line| {
                let (launch, own) = line.per_launch(metric, arm)?;
                let (_, other) = line.per_launch(metric, &plan.baseline)?;
                let log_ratio = (own / other).ln();
                log_ratio.is_finite().then_some(Launched { launch, log_ratio })
            })
            .collect()
    }

    fn verdict(
        &self,
        plan: &Plan,
        decision: Decision,
        looks: usize,
        reasons: Vec<String>,
    ) -> Verdict {
        self.complete(decision, looks, reasons, self.comparisons(plan, usize::MAX))
    }

    fn complete(
        &self,
        decision: Decision,
        looks: usize,
        reasons: Vec<String>,
        comparisons: Vec<Comparison>,
    ) -> Verdict {
        let (quads, dropped) = (self.quads.len(), self.dropped());
        Verdict { decision, looks, reasons, comparisons, quads, dropped }
    }
}
