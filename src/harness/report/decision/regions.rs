//! Where the time of steps goes: launches of every region, timed by themselves.

use super::super::format;
use super::super::html::{Node, element, text};
use super::super::page::{number, section, table};
use super::data::Data;
use crate::harness::scenario::{RegionTime, StepRegions};

/// A table for every arm and step that was timed.
pub(super) fn regions(data: &Data<'_>) -> Node {
    let run = &data.record.run;
    let mut part = section("regions", "Where the time goes");
    let mut any = false;
    for name in data.arms() {
        for step in run.arms.get(name).map_or(&[][..], |arm| &arm.regions) {
            any = true;
            part = part.with(step_table(name, step, data.bandwidth()));
        }
    }
    if any { part.into() } else { text("") }
}

fn step_table(arm: &str, step: &StepRegions, bytes_per_second: Option<f64>) -> Node {
    let total: f64 = step.regions.iter().map(|r| r.time_us).sum();
    let mut sorted: Vec<&RegionTime> = step.regions.iter().collect();
    sorted.sort_by(|a, b| b.time_us.total_cmp(&a.time_us));
    let rows = sorted
        .into_iter()
        .map(|r| {
            let of_bound = bytes_per_second.map_or_else(
                || "unavailable".to_owned(),
                |rate| format::percent(r.bytes as f64 / rate / (r.time_us / 1e6)),
            );
            element("tr")
                .with(element("th").attribute("scope", "row").with(r.region.as_str()))
                .with(number(r.launches.to_string()))
                .with(number(format::value(r.time_us)))
                .with(number(format::percent(r.time_us / total)))
                .with(number(format::value(r.bytes as f64 / 1e6)))
                .with(number(of_bound))
                .into()
        })
        .collect();
    let head = [
        ("", "region"),
        ("number", "launches"),
        ("number", "µs"),
        ("number", "share"),
        ("number", "MB"),
        ("number", "of the bytes' bound"),
    ];
    let caption = format!(
        "{arm}: a step of {} rows behind {} tokens. Launches of a region one after the other, without \
         the others: together {} µs, which is not the step's time, because neighbours overlap.",
        step.rows,
        step.context_tokens,
        format::value(total)
    );
    table(&caption, &head, rows)
}
