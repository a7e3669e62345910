//! The plots: every sample, by arm and in run order; the ratio; the bandwidth readings.

use super::super::format;
use super::super::html::{Node, element};
use super::super::page;
use super::super::plot::{Anchor, BAD, Canvas, GOOD, INK, LINE, SOFT, Scale, draw};
use super::data::{Data, Timed};
use crate::harness::scenario::{Comparison, Metric, QuadLine, is_dropped};
use crate::harness::stats::{MAX_READING_SPREAD, Quad};

const WIDTH: u32 = 520;
/// Left and right edge of the plotted area, in halves of a shown unit.
const LEFT: i32 = 96;
const RIGHT: i32 = 1020;

pub(super) fn section(data: &Data<'_>) -> Node {
    let metric = data.main_metric();
    let mut section = page::section("samples", "Samples");
    for point in 0..data.record.run.plan.points.len() {
        let timed = data.timed(metric, point);
        if timed.is_empty() {
            continue;
        }
        if data.record.run.plan.points.len() > 1 {
            section =
                section.with(element("h3").with(data.record.run.plan.points[point].to_string()));
        }
        let mut plots = element("div")
            .class("plots")
            .with(distribution(data, metric, &timed))
            .with(run_order(data, metric, &timed));
        for arm in data.arms().into_iter().skip(1) {
            let quads: Vec<&QuadLine> =
                data.quads.iter().copied().filter(|q| q.point == point && q.arm == arm).collect();
            plots = plots.with(ratios(data, metric, point, arm, &quads));
        }
        let quads: Vec<&QuadLine> =
            data.quads.iter().copied().filter(|q| q.point == point).collect();
        section = section.with(plots.with(bandwidth(&quads)));
    }
    section.into()
}

/// A strip per arm with every sample and the median.
fn distribution(data: &Data<'_>, metric: Metric, timed: &[Timed]) -> Node {
    let arms = data.arms();
    let row = 150;
    let bottom = 20 + row * arms.len() as i32;
    let kept = || timed.iter().filter(|t| !t.dropped);
    let scale = Scale::over(kept().map(|t| t.value), 30, RIGHT);
    let name = format!("{} in {}", metric.label(), metric.unit());
    let caption = format!(
        "{}: every kept sample, one strip per arm; the stroke is the median.",
        capital(metric.label())
    );
    draw(
        &format!("Distribution of {name} by arm"),
        &caption,
        (WIDTH, (bottom as u32 + 84) / 2),
        |c| {
            c.axis_x(&scale, 10, bottom, &name);
            for (arm, arm_name) in arms.iter().enumerate() {
                let middle = 20 + row * arm as i32 + 88;
                c.text(arm_name, (30, middle - 62), Anchor::Start, INK);
                let color = data.color(arm_name);
                let mut values: Vec<f64> = Vec::new();
                for t in kept().filter(|t| t.arm == arm) {
                    // A fixed low-discrepancy sequence spreads overlapping dots.
                    let jitter = (values.len() as f64 * 0.618_033_988_75).fract() - 0.5;
                    c.dot((scale.at(t.value), middle + (jitter * 62.0) as i32), 6, color, 0.45);
                    values.push(t.value);
                }
                values.sort_unstable_by(f64::total_cmp);
                let median = scale.at(format::quantile(&values, 0.5));
                c.line((median, middle - 42), (median, middle + 42), INK, 4);
            }
        },
    )
}

/// Samples in the order they were measured.
fn run_order(data: &Data<'_>, metric: Metric, timed: &[Timed]) -> Node {
    let bottom = 420;
    let x = Scale::over([0.0, timed.len() as f64 - 1.0].into_iter(), LEFT, RIGHT);
    let y = Scale::over(timed.iter().map(|t| t.value), bottom, 60);
    let name = format!("{} in {}", metric.label(), metric.unit());
    let caption = format!(
        "Samples in run order; upright strokes are fresh process launches{}.",
        if timed.iter().any(|t| t.dropped) { ", rings are dropped quads" } else { "" }
    );
    draw(&format!("{} of every sample in run order", capital(&name)), &caption, (WIDTH, 242), |c| {
        c.axis_y(&y, LEFT, RIGHT, metric.unit());
        launches(c, &x, timed.iter().map(|t| t.launch), 60, bottom);
        for t in timed {
            let color = super::super::plot::arm_color(t.arm);
            let at = (x.at(t.order as f64), y.at(t.value));
            if t.dropped { c.ring(at, 6, color) } else { c.dot(at, 6, color, 0.6) }
        }
        c.line((LEFT, bottom), (RIGHT, bottom), LINE, 3);
        let mut from = LEFT;
        for arm in data.arms() {
            c.dot((from + 8, bottom + 40), 9, data.color(arm), 1.0);
            c.text(arm, (from + 28, bottom + 40), Anchor::Start, INK);
            from += 60 + 15 * arm.chars().count() as i32;
        }
        c.text("sample →", (RIGHT, bottom + 40), Anchor::End, SOFT);
    })
}

fn launches(
    c: &mut Canvas<'_>,
    x: &Scale,
    order: impl Iterator<Item = u32>,
    top: i32,
    bottom: i32,
) {
    let mut previous = None;
    for (i, launch) in order.enumerate() {
        if previous.is_some_and(|p| p != launch) {
            let at = x.at(i as f64 - 0.5);
            c.line((at, top), (at, bottom), LINE, 2);
        }
        previous = Some(launch);
    }
}

/// The ratio of every quad with the interval and the thresholds.
fn ratios(data: &Data<'_>, metric: Metric, point: usize, arm: &str, quads: &[&QuadLine]) -> Node {
    let place = data.record.run.plan.points[point];
    let ratio = |q: &QuadLine| {
        let [a1, b1, b2, a2] =
            q.samples.each_ref().map(|s| metric.of(s, place).unwrap_or(f64::NAN));
        Quad { a1, b1, b2, a2 }.log_ratio().map(f64::exp)
    };
    let comparison: Option<&Comparison> = data
        .verdict
        .comparisons
        .iter()
        .find(|c| c.arm == arm && c.metric == metric && c.point == place);
    let bottom = 420;
    let thresholds: Vec<f64> = comparison
        .iter()
        .flat_map(|c| &c.rules)
        .flat_map(|(r, _)| [r.lower_bound_at_least, r.upper_bound_at_most])
        .flatten()
        .collect();
    let x = Scale::over([0.0, quads.len() as f64 - 1.0].into_iter(), LEFT, RIGHT);
    let values =
        quads.iter().filter_map(|q| ratio(q)).chain(thresholds.iter().copied()).chain([1.0]);
    let y = Scale::over(values, bottom, 60);
    let color = data.color(arm);
    let caption = format!(
        "Ratio {arm} / baseline of every quad in run order; the band is the interval of the ratio{}.",
        if thresholds.is_empty() { "" } else { ", dashes are the thresholds of the rule" }
    );
    let label = format!("Ratio of {} of {arm} to the baseline, quad by quad", metric.label());
    draw(&label, &caption, (WIDTH, 242), |c| {
        c.axis_y(&y, LEFT, RIGHT, "ratio");
        launches(c, &x, quads.iter().map(|q| q.launch), 60, bottom);
        c.line((LEFT, y.at(1.0)), (RIGHT, y.at(1.0)), SOFT, 2);
        if let Some(e) = comparison.map(|c| &c.estimate).filter(|e| e.lower.is_finite()) {
            c.bar((LEFT, y.at(e.lower.exp())), (RIGHT, y.at(e.upper.exp())), color, 0.22);
            c.line((LEFT, y.at(e.log_ratio.exp())), (RIGHT, y.at(e.log_ratio.exp())), color, 3);
        }
        for t in &thresholds {
            c.dashes((LEFT, y.at(*t)), (RIGHT, y.at(*t)), INK, 3);
        }
        for (i, quad) in quads.iter().enumerate() {
            let Some(r) = ratio(quad) else { continue };
            let at = (x.at(i as f64), y.at(r));
            if is_dropped(quad) { c.ring(at, 7, color) } else { c.dot(at, 7, color, 0.7) }
        }
        c.line((LEFT, bottom), (RIGHT, bottom), LINE, 3);
        c.text("quad →", (RIGHT, bottom + 40), Anchor::End, SOFT);
    })
}

/// The bandwidth readings inside every quad.
fn bandwidth(quads: &[&QuadLine]) -> Node {
    let bottom = 420;
    let readings =
        |q: &QuadLine| q.bandwidth_bytes_per_second.iter().map(|b| b / 1e9).collect::<Vec<_>>();
    let x = Scale::over([0.0, quads.len() as f64 - 1.0].into_iter(), LEFT, RIGHT);
    let y = Scale::over(quads.iter().flat_map(|q| readings(q)), bottom, 60).starting_at(0.0);
    let dropped = quads.iter().filter(|q| is_dropped(q)).count() as u64;
    let caption = format!(
        "Read bandwidth, three readings of every quad: {} dropped because readings differ by more than {:.0}% (marked).",
        format::plural(dropped, "quad"),
        100.0 * MAX_READING_SPREAD
    );
    draw("Read bandwidth inside every quad, in run order", &caption, (WIDTH, 242), |c| {
        c.axis_y(&y, LEFT, RIGHT, "GB/s");
        for (i, quad) in quads.iter().enumerate() {
            let color = if is_dropped(quad) { BAD } else { GOOD };
            let at = x.at(i as f64);
            let values = readings(quad);
            let (low, high) =
                values.iter().fold((f64::MAX, f64::MIN), |(l, h), v| (l.min(*v), h.max(*v)));
            c.line((at, y.at(low)), (at, y.at(high)), color, 2);
            for v in values {
                c.dot((at, y.at(v)), 5, color, 0.7);
            }
        }
        c.line((LEFT, bottom), (RIGHT, bottom), LINE, 3);
        c.text("quad →", (RIGHT, bottom + 40), Anchor::End, SOFT);
    })
}

fn capital(words: &str) -> String {
    let mut chars = words.chars();
    chars.next().map_or(String::new(), |c| c.to_uppercase().chain(chars).collect())
}
