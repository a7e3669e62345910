//! Metrics per arm, the fraction of the physical bound, quality.

use super::super::format;
use super::super::html::{Node, element, text};
use super::super::page::{number, section, table, tag};
use super::data::Data;
use crate::harness::scenario::{BASELINE, Bound, Comparison, Metric, Slot, is_dropped};
use crate::harness::stats::Side;

pub(super) fn metrics(data: &Data<'_>) -> Node {
    let plan = &data.record.run.plan;
    let mut rows = Vec::new();
    for (index, point) in plan.points.iter().enumerate() {
        for &metric in &plan.metrics {
            if metric.is_per_launch() && index > 0 {
                continue;
            }
            for (arm, name) in data.arms().into_iter().enumerate() {
                let values = data.sorted(metric, index, arm);
                let comparison = data
                    .verdict
                    .comparisons
                    .iter()
                    .find(|c| c.arm == name && c.metric == metric && c.point == *point);
                let mut row = element("tr");
                if arm == 0 {
                    let place =
                        if metric.is_per_launch() { String::new() } else { data.place(*point) };
                    let better =
                        if metric.higher_is_better() { "more is better" } else { "less is better" };
                    row = row.with(
                        element("th")
                            .attribute("scope", "rowgroup")
                            .attribute("rowspan", &data.arms().len().to_string())
                            .with(format!("{}{place}", metric.label()))
                            .with(
                                element("span")
                                    .class("range soft")
                                    .with(format!("{}, {better}", metric.unit())),
                            ),
                    );
                }
                rows.push(
                    row.with(element("td").with(name))
                        .with(median(&values))
                        .with(number(ratio_cell(comparison, arm)))
                        .with(number(interval_cell(comparison, arm)))
                        .with(element("td").with(rule_cell(comparison)))
                        .into(),
                );
            }
        }
    }
    let head = [
        ("", "metric"),
        ("", "arm"),
        ("number", "median (5–95%)"),
        ("number", "ratio"),
        ("number", "interval"),
        ("", "rule"),
    ];
    let caption = format!(
        "Ratios are to {BASELINE}: Hodges–Lehmann estimate over A B B A quads, bounds by signed rank, each wrong with probability at most {} over all looks.",
        format::percent(crate::harness::stats::ALPHA_PER_SIDE)
    );
    section("metrics", "Metrics").with(table(&caption, &head, rows)).into()
}

fn median(sorted: &[f64]) -> Node {
    if sorted.is_empty() {
        return number("unavailable").into();
    }
    let q = |share| format::value(format::quantile(sorted, share));
    number(q(0.5))
        .with(element("span").class("range").with(format!("{} – {}", q(0.05), q(0.95))))
        .into()
}

fn ratio_cell(comparison: Option<&Comparison>, arm: usize) -> Node {
    match comparison {
        _ if arm == 0 => text("1"),
        None => text("—"),
        Some(c) => [
            Node::from(element("b").with(format::ratio(c.estimate.log_ratio))),
            element("span").class("range").with(format::change(c.estimate.log_ratio)).into(),
        ]
        .into_iter()
        .collect(),
    }
}

fn interval_cell(comparison: Option<&Comparison>, arm: usize) -> Node {
    match comparison {
        Some(c) if arm > 0 && c.estimate.lower.is_finite() => text(&format!(
            "{} – {}",
            format::ratio(c.estimate.lower),
            format::ratio(c.estimate.upper)
        )),
        Some(c) if arm > 0 => element("span")
            .class("soft small")
            .with(format!("no bound: {} {}", c.estimate.data, c.estimate.datum))
            .into(),
        _ => text(""),
    }
}

fn rule_cell(comparison: Option<&Comparison>) -> Node {
    let Some(c) = comparison else { return text("") };
    c.rules
        .iter()
        .map(|(rule, side)| {
            let (class, word) = match side {
                Side::Above => ("pass", "holds"),
                Side::Below => ("fail", "broken"),
                Side::Open => ("measured", "open"),
            };
            let limits: Vec<String> = [
                rule.lower_bound_at_least.map(|t| format!("≥ {t}")),
                rule.upper_bound_at_most.map(|t| format!("≤ {t}")),
            ]
            .into_iter()
            .flatten()
            .collect();
            Node::from(tag(class, &format!("{} {word}", limits.join(", "))))
        })
        .collect()
}

pub(super) fn bound(data: &Data<'_>) -> Node {
    let run = &data.record.run;
    let Some(Bound::MemoryBandwidth) = run.scenario.bound else { return text("") };
    let mut rows = Vec::new();
    for (index, point) in run.plan.points.iter().enumerate() {
        for name in data.arms() {
            let Some(bytes) = run.arms.get(name).and_then(|a| a.bytes_per_token.get(index)) else {
                continue;
            };
            let mut fractions = Vec::new();
            let mut bounds = Vec::new();
            for quad in data.quads.iter().filter(|q| q.point == index && !is_dropped(q)) {
                let readings = &quad.bandwidth_bytes_per_second;
                let bandwidth = readings.iter().sum::<f64>() / readings.len() as f64;
                let most = bandwidth / *bytes as f64;
                for (slot, sample) in Slot::QUAD.iter().zip(&quad.samples) {
                    if run.plan.arm(*slot, &quad.arm) != name {
                        continue;
                    }
                    let speed =
                        Metric::DecodeTokensPerSecond.of(sample, *point).unwrap_or(f64::NAN);
                    fractions.push(speed / most);
                    bounds.push(most);
                }
            }
            fractions.sort_unstable_by(f64::total_cmp);
            bounds.sort_unstable_by(f64::total_cmp);
            let q = |share| format::percent(format::quantile(&fractions, share));
            rows.push(
                element("tr")
                    .with(element("td").with(format!("{name}{}", data.place(*point))))
                    .with(number(format::bytes(*bytes)))
                    .with(number(format!(
                        "{} tokens/s",
                        format::value(format::quantile(&bounds, 0.5))
                    )))
                    .with(number(element("b").with(q(0.5))).with(
                        element("span").class("range").with(format!("{} – {}", q(0.05), q(0.95))),
                    ))
                    .into(),
            );
        }
    }
    let head = [
        ("", "arm"),
        ("number", "bytes per token"),
        ("number", "bound"),
        ("number", "reached (5–95%)"),
    ];
    section("bound", "Fraction of the physical bound")
        .with(element("p").with(
            "A single-token step reads every weight once. The bound is the read bandwidth measured inside the same quad divided by those bytes (cached keys and values included).",
        ))
        .with(table("Decode against memory bandwidth", &head, rows))
        .into()
}

/// Quality evidence, or that there is none.
pub(super) fn quality(data: &Data<'_>) -> Node {
    let same = {
        let digests = |arm: &str| -> Option<Vec<String>> {
            data.record.lines.iter().find_map(|l| match l {
                crate::harness::scenario::Line::Launch(l) => {
                    l.arms.get(arm).map(|a| a.tokens.clone())
                }
                _ => None,
            })
        };
        let arms: Vec<_> = data.arms().into_iter().map(digests).collect();
        arms.windows(2).all(|w| w[0].is_some() && w[0] == w[1])
    };
    let tokens = if same {
        "All arms produced the same tokens for the timed prompts."
    } else {
        "The arms produced different tokens for the timed prompts, as executions of different numerics may."
    };
    section("quality", "Quality")
        .with(super::quality::evidence(data.record.run.quality.as_ref()))
        .with(element("p").with(format!(
            "Every timed sample produced exactly the tokens of its own arm's untimed run, else the run would be invalid. {tokens}"
        )))
        .into()
}
