//! Metrics and ratios over the values of a sweep.

use super::super::format;
use super::super::html::{Node, element, text};
use super::super::page;
use super::super::plot::{Anchor, Canvas, INK, LINE, SOFT, Scale, draw};
use super::data::Data;
use crate::harness::scenario::{Metric, Point};

const WIDTH: u32 = 520;
const LEFT: i32 = 116;
const RIGHT: i32 = 1020;
const TOP: i32 = 60;
const BOTTOM: i32 = 420;

/// What is swept: its name and the value of a point.
type Axis = (&'static str, fn(&Point) -> u32);

/// Axes with more than one value.
fn axes(points: &[Point]) -> Vec<Axis> {
    let all: [Axis; 3] = [
        ("prompt_tokens", |p| p.prompt_tokens),
        ("decode_tokens", |p| p.decode_tokens),
        ("sequences", |p| p.sequences),
    ];
    let varies = |axis: &Axis| points.iter().any(|p| axis.1(p) != axis.1(&points[0]));
    all.into_iter().filter(varies).collect()
}

/// A plot of the values and one of the ratios for every metric and swept axis.
pub(super) fn section(data: &Data<'_>) -> Node {
    let points = &data.record.run.plan.points;
    let mut plots = element("div").class("plots");
    let mut any = false;
    for axis in axes(points) {
        for &metric in data.record.run.plan.metrics.iter().filter(|m| !m.is_per_launch()) {
            any = true;
            plots = plots.with(values(data, axis, metric)).with(ratios(data, axis, metric));
        }
    }
    if !any {
        return text("");
    }
    page::section("sweep", "Over the sweep").with(plots).into()
}

/// Points on one line of the plot: their place among the points, and their value on the axis.
type LinePoints = Vec<(usize, u32)>;

/// Points by line: on one are all that agree in what is not on the axis.
fn lines(points: &[Point], axis: Axis) -> Vec<LinePoints> {
    let rest = |p: &Point| match axis.0 {
        "prompt_tokens" => [p.decode_tokens, p.sequences],
        "decode_tokens" => [p.prompt_tokens, p.sequences],
        _ => [p.prompt_tokens, p.decode_tokens],
    };
    let mut groups: Vec<([u32; 2], LinePoints)> = Vec::new();
    for (i, point) in points.iter().enumerate() {
        let entry = (i, axis.1(point));
        match groups.iter_mut().find(|(key, _)| *key == rest(point)) {
            Some((_, group)) => group.push(entry),
            None => groups.push((rest(point), vec![entry])),
        }
    }
    groups.iter_mut().for_each(|(_, group)| group.sort_by_key(|(_, value)| *value));
    groups.into_iter().map(|(_, group)| group).collect()
}

/// Sweeps are powers of something more often than not: the axis is logarithmic.
fn across(points: &[Point], axis: Axis) -> (Scale, Vec<u32>) {
    let mut ticks: Vec<u32> = points.iter().map(axis.1).collect();
    ticks.sort_unstable();
    ticks.dedup();
    let scale = Scale::over(ticks.iter().map(|v| f64::from(*v).ln()), LEFT, RIGHT);
    (scale, ticks)
}

fn frame(c: &mut Canvas<'_>, x: &Scale, ticks: &[u32], name: &str) {
    let mut end = i32::MIN;
    for value in ticks {
        let at = x.at(f64::from(*value).ln());
        c.line((at, TOP), (at, BOTTOM), LINE, 2);
        let label = value.to_string();
        // A label that would touch the one before it is left out; its grid line stays.
        let half = 8 * label.len() as i32;
        if at - half > end {
            c.text(&label, (at, BOTTOM + 26), Anchor::Middle, SOFT);
            end = at + half + 12;
        }
    }
    c.line((LEFT, BOTTOM), (RIGHT, BOTTOM), LINE, 3);
    c.text(name, ((LEFT + RIGHT) / 2, BOTTOM + 62), Anchor::Middle, SOFT);
}

fn values(data: &Data<'_>, axis: Axis, metric: Metric) -> Node {
    let points = &data.record.run.plan.points;
    let (x, ticks) = across(points, axis);
    let of = |arm: usize, point: usize| data.sorted(metric, point, arm);
    let arms = data.arms();
    let all = (0..arms.len()).flat_map(|arm| (0..points.len()).map(move |p| (arm, p)));
    let shares = all.flat_map(|(arm, point)| {
        let sorted = of(arm, point);
        [0.05, 0.95].map(|share| format::quantile(&sorted, share))
    });
    let y = Scale::over(shares, BOTTOM, TOP);
    let label = format!("{} over {} by arm", metric.label(), axis.0);
    let caption = format!(
        "{} over {}: medians, with strokes from the 5th to the 95th percentile.",
        metric.label(),
        axis.0
    );
    draw(&label, &caption, (WIDTH, 262), |c| {
        c.axis_y(&y, LEFT, RIGHT, metric.unit());
        frame(c, &x, &ticks, axis.0);
        for (arm, name) in arms.iter().enumerate() {
            let color = data.color(name);
            // Arms stand beside one another where their strokes would cover each other.
            let aside = 10 * arm as i32 - 5 * (arms.len() as i32 - 1);
            for line in lines(points, axis) {
                let mut before = None;
                for (point, value) in line {
                    let sorted = of(arm, point);
                    if sorted.is_empty() {
                        continue;
                    }
                    let at = x.at(f64::from(value).ln()) + aside;
                    let q = |share| y.at(format::quantile(&sorted, share));
                    c.line((at, q(0.05)), (at, q(0.95)), color, 3);
                    c.dot((at, q(0.5)), 9, color, 1.0);
                    if let Some(from) = before.replace((at, q(0.5))) {
                        c.line(from, (at, q(0.5)), color, 3);
                    }
                }
            }
        }
        legend(c, data, &arms);
    })
}

/// The names of the arms along the upper edge, right-aligned.
fn legend(c: &mut Canvas<'_>, data: &Data<'_>, arms: &[&str]) {
    let mut end = RIGHT;
    for name in arms.iter().rev() {
        c.text(name, (end, 26), Anchor::End, INK);
        let start = end - 15 * name.chars().count() as i32 - 22;
        c.dot((start, 26), 9, data.color(name), 1.0);
        end = start - 34;
    }
}

fn ratios(data: &Data<'_>, axis: Axis, metric: Metric) -> Node {
    let points = &data.record.run.plan.points;
    let (x, ticks) = across(points, axis);
    let arms = data.arms();
    let of = |arm: &str, point: usize| {
        let same = |c: &&crate::harness::scenario::Comparison| c.arm == arm && c.metric == metric;
        data.verdict.comparisons.iter().filter(same).find(|c| c.point == points[point])
    };
    let candidates = arms.iter().skip(1);
    let shown = candidates.flat_map(|arm| (0..points.len()).filter_map(move |p| of(arm, p)));
    let bounds = shown.flat_map(|c| {
        let limits =
            c.rules.iter().flat_map(|(r, _)| [r.lower_bound_at_least, r.upper_bound_at_most]);
        let e = &c.estimate;
        let own = [e.lower, e.upper, e.log_ratio].map(f64::exp);
        own.into_iter().filter(|v| *v > 0.0).chain(limits.flatten()).collect::<Vec<_>>()
    });
    let y = Scale::over(bounds.chain([1.0]), BOTTOM, TOP);
    let label = format!("Ratio of {} to the baseline over {}", metric.label(), axis.0);
    let caption = format!(
        "Ratio of {} to the baseline over {}: estimates with their intervals; short dashes are the thresholds of the rule.",
        metric.label(),
        axis.0
    );
    draw(&label, &caption, (WIDTH, 262), |c| {
        c.axis_y(&y, LEFT, RIGHT, "ratio");
        frame(c, &x, &ticks, axis.0);
        c.line((LEFT, y.at(1.0)), (RIGHT, y.at(1.0)), SOFT, 2);
        for (arm, name) in arms.iter().enumerate().skip(1) {
            let color = data.color(name);
            let aside = 12 * (arm as i32 - 1) - 6 * (arms.len() as i32 - 2);
            for line in lines(points, axis) {
                let mut before = None;
                for (point, value) in line {
                    let Some(found) = of(name, point) else { continue };
                    let e = &found.estimate;
                    let at = x.at(f64::from(value).ln()) + aside;
                    let middle = y.at(e.log_ratio.exp());
                    if e.lower.is_finite() && e.upper.is_finite() {
                        c.line((at, y.at(e.lower.exp())), (at, y.at(e.upper.exp())), color, 5);
                    }
                    c.dot((at, middle), 8, color, 1.0);
                    if let Some(from) = before.replace((at, middle)) {
                        c.line(from, (at, middle), color, 2);
                    }
                    for (rule, _) in &found.rules {
                        let limits = [rule.lower_bound_at_least, rule.upper_bound_at_most];
                        for t in limits.into_iter().flatten() {
                            c.dashes((at - 32, y.at(t)), (at + 32, y.at(t)), INK, 3);
                        }
                    }
                }
            }
        }
        legend(c, data, &arms[1..]);
    })
}
