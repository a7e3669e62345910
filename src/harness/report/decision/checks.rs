//! How the interval came about and what was checked: looks, launches, drift, error rates.

use super::super::format;
use super::super::html::{Node, element, text};
use super::super::page::{facts, number, section as page_section, table};
use super::data::Data;
use crate::harness::scenario::{Line, Rate, Turn};
use crate::harness::stats::{LAUNCH_EFFECT_P, MAX_DROPPED_SHARE, POWER};
use crate::units::total;

pub(super) fn section(data: &Data<'_>) -> Node {
    page_section("method", "Method and checks")
        .with(summary(data))
        .with(ratios(data))
        .with(error_rates(data))
        .into()
}

fn summary(data: &Data<'_>) -> Node {
    let (run, verdict) = (&data.record.run, data.verdict);
    let launches = data.record.lines.iter().filter(|l| matches!(l, Line::Launch(_))).count();
    let looks: Vec<String> = run.plan.looks.quads.iter().map(usize::to_string).collect();
    let throttled: Vec<Option<u64>> = data
        .record
        .lines
        .iter()
        .filter_map(|l| if let Line::LaunchEnd(e) = l { Some(e.throttle_events) } else { None })
        .collect();
    let clocks = if throttled.is_empty() || throttled.contains(&None) {
        "throttling counters unavailable on this machine".to_owned()
    } else {
        format::plural(total(throttled.iter().flatten().copied()), "throttling event")
    };
    let dropped = format!(
        "{} of {} ({} allowed)",
        verdict.dropped,
        verdict.quads,
        format::percent(MAX_DROPPED_SHARE)
    );
    let mut rows: Vec<(String, Node)> = vec![
        (
            "Looks".into(),
            text(&format!(
                "decided at look {} of {} (after {} quads of each series)",
                verdict.looks,
                looks.len(),
                looks.join(", ")
            )),
        ),
        (
            "Process launches".into(),
            text(&format!(
                "{launches}, {} quads each; arms interleaved A B B A, all processes alive and idle between turns",
                run.plan.looks.quads_per_launch
            )),
        ),
        (
            "Warm-up".into(),
            text(&format!(
                "{} of every workload in every process, the last one recorded as the untimed run",
                format::plural(u64::from(run.plan.warmup), "untimed run")
            )),
        ),
        ("Quads dropped".into(), text(&dropped)),
        ("Clocks".into(), text(&clocks)),
    ];
    let gpu = super::device::rows(&run.plan, &data.record.lines);
    rows.extend(gpu.into_iter().map(|(name, words)| (name.to_owned(), text(&words))));
    if run.parts > 1 {
        rows.push(("Parts".into(), text(&format!("measured in {} parts (resumed)", run.parts))));
    }
    facts("How it was measured", rows)
}

fn ratios(data: &Data<'_>) -> Node {
    let rows = data.verdict.comparisons.iter().filter(|c| !c.metric.is_per_launch()).map(|c| {
        let e = &c.estimate;
        let launch = e.launch_effect.map_or("not testable".into(), |l| {
            let strong = if l.p < LAUNCH_EFFECT_P { ", launches differ" } else { "" };
            format!("p = {}{strong}", format::p_value(l.p))
        });
        let drift =
            format!("{} (p = {})", format::change(e.drift.total), format::p_value(e.drift.p));
        let detectable = e.smallest_detectable();
        let detectable = if detectable.is_finite() {
            format!("±{}", format::percent(detectable.exp_m1()))
        } else {
            "none".into()
        };
        element("tr")
            .with(element("td").with(format!(
                "{}: {}{}",
                c.arm,
                c.metric.label(),
                data.place(c.point)
            )))
            .with(element("td").with(format!("{} {}", e.data, e.datum)))
            .with(number(launch))
            .with(number(format!("{:.3}", e.autocorrelation)))
            .with(number(drift))
            .with(number(element("b").with(detectable)))
            .into()
    });
    let head = [
        ("", "ratio"),
        ("", "data"),
        ("number", "launch effect"),
        ("number", "autocorrelation"),
        ("number", "drift over the run"),
        ("number", "smallest effect detectable"),
    ];
    let caption = format!(
        "Smallest effect detectable: how far beyond a threshold the truth must lie to be decided by this many data of this spread with probability {}.",
        format::percent(POWER)
    );
    table(&caption, &head, rows.collect())
}

/// How often the procedure errs on this machine, as it was known when the run started.
fn error_rates(data: &Data<'_>) -> Node {
    let heading =
        Node::from(element("h3").with("How often the harness errs on a machine like this"));
    let Some(rates) = &data.record.run.scenario.error_rates else {
        let unknown = element("p").with(
            "Not established on this machine when the run started: assay scenario error-rates does it.",
        );
        return [heading, unknown.into()].into_iter().collect();
    };
    let row = |what: String, rate: &Rate, runs: u64| -> Node {
        element("tr")
            .with(element("td").with(what))
            .with(number(element("b").with(format::percent(rate.share))).with(
                element("span").class("range").with(format!(
                    "{} – {}",
                    format::percent(rate.lower),
                    format::percent(rate.upper)
                )),
            ))
            .with(number(format!("{} of {runs}", rate.real)))
            .into()
    };
    let rows = vec![
        row("admitted at the threshold".into(), &rates.false_admit, rates.real_runs),
        row("declined at the threshold".into(), &rates.false_decline, rates.real_runs),
        row(
            format!("not declined, slower by {}", format::percent(rates.slowdown_ratio)),
            &rates.missed,
            rates.slowed_runs,
        ),
    ];
    let head = [("", "error"), ("number", "pseudo-runs (99%)"), ("number", "real runs")];
    let caption = format!(
        "Campaign {} of {} on a machine like this: {} pseudo-runs of each kind out of {} A/A quads, exact 99% intervals{}.",
        rates.run_id,
        format::moment(&rates.started),
        format::count(rates.pseudo_runs),
        rates.series_quads,
        if rates.holds { "" } else { "; a rate exceeds its limit or the real runs disagree" }
    );
    let mut body = vec![heading, table(&caption, &head, rows)];
    if let Some(procedure) = &rates.procedure {
        let turns = if procedure.turn == Turn::Step { "step" } else { "sample" };
        let looks: Vec<String> = procedure.looks.quads.iter().map(ToString::to_string).collect();
        let measured = format!(
            "Measured with {}, {}: arms take turns after every {turns}, looks at {} quads, {} a launch. A run that is measured in another way may err otherwise.",
            procedure.model,
            procedure.workload,
            looks.join(", "),
            procedure.looks.quads_per_launch
        );
        body.push(element("p").class("soft").with(measured).into());
    }
    body.into_iter().collect()
}
