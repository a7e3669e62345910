//! Live peers and recorded arms: beside the decision, never part of it.

use super::super::format;
use super::super::html::{Node, element, text};
use super::super::page::{number, section as page_section, table};
use super::data::Data;
use crate::harness::scenario::{Comparison, Line, Metric, QuadLine, is_dropped};

pub(super) fn section(data: &Data<'_>) -> Node {
    let run = &data.record.run;
    if run.peers.is_empty() && run.beside.is_empty() {
        return text("");
    }
    let mut body = page_section("beside", "Beside other engines and records").with(element("p").with(
        "Nothing here takes part in the decision. A peer ratio compares a live peer with the baseline in quads of their own, and is shown where the peer declares weights converted from the same folder and computed the same token counts. What was recorded earlier has no ratio.",
    ));
    for name in run.peers.keys() {
        body = body.with(peer(data, name));
    }
    if !run.beside.is_empty() {
        body = body.with(recorded(data));
    }
    body.into()
}

fn peer(data: &Data<'_>, name: &str) -> Node {
    let record = &data.record.run.peers[name];
    let said = [
        record.name.clone(),
        record.model.clone(),
        record.threads.map(|t| format::plural(t as u64, "thread")),
        record.output.map(|o| format!("output: {o}")),
    ];
    let said: Vec<String> = said.into_iter().flatten().collect();
    let heading: Node = element("h3").with(format!("Live peer {name}")).into();
    let said: Node = element("p")
        .with(if said.is_empty() { "It said nothing of itself.".into() } else { said.join(" · ") })
        .into();
    let ratios = data.record.peer_ratios(name);
    let mut rows = Vec::new();
    for (index, point) in data.record.run.plan.points.iter().enumerate() {
        for metric in data.record.run.plan.metrics.iter().filter(|m| !m.is_per_launch()) {
            let mut values = values(data, name, index, *metric);
            if values.is_empty() {
                continue;
            }
            values.sort_unstable_by(f64::total_cmp);
            let ratio = ratios
                .as_ref()
                .ok()
                .and_then(|all| all.iter().find(|c| c.metric == *metric && c.point == *point));
            rows.push(
                element("tr")
                    .with(element("td").with(format!(
                        "{} ({}){}",
                        metric.label(),
                        metric.unit(),
                        data.place(*point)
                    )))
                    .with(median(&values))
                    .with(number(ratio.map_or_else(|| text("—"), ratio_cell)))
                    .into(),
            );
        }
    }
    let reason: Node = match &ratios {
        Ok(_) => text(""),
        Err(reason) => element("p").with(format!("No peer ratio: {reason}.")).into(),
    };
    let table = if rows.is_empty() {
        text("")
    } else {
        let head = [("", "metric"), ("number", "median (5–95%)"), ("number", "peer ratio")];
        table(&format!("{name} beside the baseline"), &head, rows)
    };
    [heading, said, reason, table].into_iter().collect()
}

/// Values of a live peer's own samples in quads that count.
fn values(data: &Data<'_>, peer: &str, point: usize, metric: Metric) -> Vec<f64> {
    let quads = data.record.lines.iter().filter_map(|line| match line {
        Line::Quad(q) if q.arm == peer && q.point == point && !is_dropped(q) => Some(q),
        _ => None,
    });
    let place = data.record.run.plan.points[point];
    let own = |q: &QuadLine| [1, 2].map(|i| metric.of(&q.samples[i], place));
    quads.flat_map(own).flatten().collect()
}

fn median(sorted: &[f64]) -> Node {
    let q = |share| format::value(format::quantile(sorted, share));
    number(q(0.5))
        .with(element("span").class("range").with(format!("{} – {}", q(0.05), q(0.95))))
        .into()
}

fn ratio_cell(c: &Comparison) -> Node {
    let e = &c.estimate;
    let interval = if e.lower.is_finite() {
        format!("{} – {}", format::ratio(e.lower), format::ratio(e.upper))
    } else {
        format!("no bound: {} {}", e.data, e.datum)
    };
    [
        Node::from(element("b").with(format!("peer ratio {}", format::ratio(e.log_ratio)))),
        element("span").class("range").with(interval).into(),
    ]
    .into_iter()
    .collect()
}

fn recorded(data: &Data<'_>) -> Node {
    let mut rows = Vec::new();
    for (name, beside) in &data.record.run.beside {
        for value in &beside.values {
            let place = format!("{}", value.point);
            let shown = |v: f64| format::value(value.metric.shown(v));
            rows.push(
                element("tr")
                    .with(element("td").with(name.as_str()).with(
                        element("span").class("range").with(format!(
                            "{} of run {}, {}, {}",
                            beside.arm,
                            beside.run_id,
                            beside.model,
                            beside.cpu.as_deref().unwrap_or("unknown processor")
                        )),
                    ))
                    .with(
                        element("td")
                            .with(format!("{} ({})", value.metric.label(), value.metric.unit()))
                            .with(element("span").class("range").with(place)),
                    )
                    .with(number(shown(value.median)).with(
                        element("span").class("range").with(format!(
                            "{} – {}",
                            shown(value.low),
                            shown(value.high)
                        )),
                    ))
                    .with(number(value.samples.to_string()))
                    .into(),
            );
        }
    }
    let head =
        [("", "recorded arm"), ("", "metric"), ("number", "median (5–95%)"), ("number", "samples")];
    [
        Node::from(element("h3").with("Recorded earlier")),
        table("Arms of earlier records, without a ratio", &head, rows),
    ]
    .into_iter()
    .collect()
}
