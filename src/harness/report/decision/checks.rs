//! How the interval came about and what was checked: looks, launches, drift, error rates.

use super::super::format;
use super::super::html::{Node, element, text};
use super::super::page::{facts, number, section as page_section, table};
use super::data::Data;
use crate::harness::scenario::Line;
use crate::harness::stats::{ErrorRates, LAUNCH_EFFECT_P, MAX_DROPPED_SHARE, POWER, Proportion};

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
        format::plural(throttled.iter().flatten().sum(), "throttling event")
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

fn error_rates(data: &Data<'_>) -> Node {
    let Some(rates) = data.record.error_rates() else { return text("") };
    let rates: ErrorRates = match rates {
        Ok(rates) => rates,
        Err(message) => return element("p").with(format!("Error rates: {message}.")).into(),
    };
    let row = |truth: String, p: [&Proportion; 3]| -> Node {
        let cell = |p: &Proportion| {
            number(format::percent(p.share())).with(element("span").class("range").with(format!(
                "{} – {}",
                format::percent(p.lower),
                format::percent(p.upper)
            )))
        };
        element("tr").with(element("td").with(truth)).with_all(p.map(cell)).into()
    };
    let o = |o: &crate::harness::stats::Outcomes| [o.admitted, o.declined, o.inconclusive];
    let at = o(&rates.at_threshold);
    let slowed = o(&rates.slowed);
    let head =
        [("", "truth"), ("number", "admitted"), ("number", "declined"), ("number", "inconclusive")];
    let rows = vec![
        row("ratio at the threshold (admitted, declined: errors)".into(), at.each_ref()),
        row(
            format!("true slowdown of {} (not declined: missed)", format::percent(rates.slowdown)),
            slowed.each_ref(),
        ),
    ];
    let caption = format!(
        "{} pseudo-runs of each kind, block-resampled out of this run's {} quads (seed {}); exact 99% intervals.",
        format::count(rates.pseudo_runs),
        rates.series_quads,
        rates.seed
    );
    [
        Node::from(element("h3").with("How often this procedure errs here")),
        table(&caption, &head, rows),
    ]
    .into_iter()
    .collect()
}
