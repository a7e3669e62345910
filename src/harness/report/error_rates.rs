//! The page of a campaign that establishes how often the harness errs.

use super::format;
use super::html::{Node, element, text};
use super::page::{again, number, page, section, set_words, table};
use super::plot::{Anchor, GOOD, INK, LINE, SOFT, Scale, draw};
use crate::harness::scenario::{ErrorRun, Errors, Line, QuadLine, is_dropped};
use crate::harness::stats::{self, Outcomes, Proportion, Quad};
use std::collections::BTreeMap;

/// Renders the page of a campaign from its record alone.
pub fn render_error_rates(record: &ErrorRun) -> String {
    let run = &record.run;
    let errors = record.errors();
    let heading = "How often the harness errs on this machine";
    let body: Node = match &errors {
        Ok(errors) => [
            verdict(record, errors),
            rates(record, errors),
            figure(record),
            scatter(record),
            environment(record),
            reproduce(record),
        ]
        .into_iter()
        .collect(),
        Err(message) => {
            let problem = element("p").with(format!("No rates: {message}."));
            [Node::from(problem), environment(record), reproduce(record)].into_iter().collect()
        }
    };
    let kicker = text(&format!(
        "Assay error rates · {} · {} · {}",
        run.scenario.path,
        run.scenario.device,
        format::moment(&run.started)
    ));
    let foot = element("p").with(format!(
        "Campaign {} · assay {} · rendered from its record alone; every sample is in record.json.",
        run.run_id, run.build.version
    ));
    page("Error rates · Assay", kicker, heading, body, foot.into())
}

fn verdict(record: &ErrorRun, errors: &Errors) -> Node {
    let (class, word) =
        if errors.problems.is_empty() { ("pass", "Within limits") } else { ("fail", "Not within") };
    let spec = &record.run.spec;
    let limits = format!(
        "Limits: false admits and false declines at most {} each, a slowdown of {} missed at most {} of the time; real runs agree with resampled ones.",
        format::percent(spec.at_most),
        format::percent(spec.slowdown_ratio),
        format::percent(spec.missed_at_most)
    );
    let mut section = element("section")
        .class(&format!("verdict {class}"))
        .attribute("aria-label", "Verdict")
        .with(element("p").class("word").with(word))
        .with(element("p").with(limits));
    if !errors.problems.is_empty() {
        let items = errors.problems.iter().map(|p| element("li").with(p.as_str()));
        section = section.with(element("ul").with_all(items));
    }
    section.into()
}

fn rates(record: &ErrorRun, errors: &Errors) -> Node {
    let r = &errors.resampled;
    let row = |truth: String, how: String, o: &Outcomes| -> Node {
        let cell = |p: &Proportion| {
            number(element("b").with(format::percent(p.share()))).with(
                element("span").class("range").with(format!(
                    "{} of {}; {} – {}",
                    p.count,
                    format::count(p.trials),
                    format::percent(p.lower),
                    format::percent(p.upper)
                )),
            )
        };
        element("tr")
            .with(element("td").with(truth).with(element("span").class("range").with(how)))
            .with_all([&o.admitted, &o.declined, &o.inconclusive].map(cell))
            .into()
    };
    let at = || "true ratio at the threshold".to_owned();
    let slower = || format!("truly slower by {}", format::percent(r.slowdown));
    let pseudo = |n: u64| format!("{} pseudo-runs", format::count(n));
    let real = |o: &Outcomes| format!("{} real runs", o.admitted.trials);
    let rows = vec![
        row(at(), pseudo(r.pseudo_runs), &r.at_threshold),
        row(at(), real(&errors.real), &errors.real),
        row(slower(), pseudo(r.pseudo_runs), &r.slowed),
        row(slower(), real(&errors.slowed), &errors.slowed),
    ];
    let head = [
        ("", "truth"),
        ("number", "admitted"),
        ("number", "declined"),
        ("number", "inconclusive or invalid"),
    ];
    let looks = &record.run.plans.real.looks;
    let quads: Vec<String> = looks.quads.iter().map(usize::to_string).collect();
    section("rates", "Rates")
        .with(element("p").with(format!(
            "Both arms execute the same. With the true ratio at the threshold every admit and every decline is an error; with a true slowdown everything but a decline is a miss. Pseudo-runs are block-resampled out of one A/A series of {} quads, centred on its own estimate (seed {}); intervals are exact, 99%. In real slowed runs the candidate waits after every step. A run looks at its data after {} quads, {} per process launch.",
            r.series_quads,
            r.seed,
            quads.join(", "),
            looks.quads_per_launch
        )))
        .with(table("Decisions by truth", &head, rows))
        .with(element("p").with(format!(
            "Half the width of a real run's interval, typically: {}.",
            format::percent(errors.half_width.exp_m1())
        )))
        .into()
}

/// The ratio of every quad of the series, in run order.
fn figure(record: &ErrorRun) -> Node {
    let ratios: Vec<f64> = quads(record)
        .filter(|(of, q)| of.starts_with("series") && !is_dropped(q))
        .filter_map(|(_, q)| Some(log_ratio(record, q)?.exp()))
        .collect();
    let (left, right, bottom) = (96, 1020, 420);
    let x = Scale::over([0.0, ratios.len() as f64 - 1.0].into_iter(), left, right);
    let y = Scale::over(ratios.iter().copied().chain([1.0]), bottom, 60);
    let caption = "Ratio of two arms that are the same, every quad of the A/A series in run order.";
    let drawn = draw("Ratio of every quad of the A/A series", caption, (520, 242), |c| {
        c.axis_y(&y, left, right, "ratio");
        c.line((left, y.at(1.0)), (right, y.at(1.0)), INK, 2);
        for (i, ratio) in ratios.iter().enumerate() {
            c.dot((x.at(i as f64), y.at(*ratio)), 5, GOOD, 0.5);
        }
        c.line((left, bottom), (right, bottom), LINE, 3);
        c.text("quad →", (right, bottom + 40), Anchor::End, SOFT);
    });
    section("series", "The A/A series").with(drawn).into()
}

/// Every quad of the campaign with the run or part of the series that it belongs to, in run order.
fn quads(record: &ErrorRun) -> impl Iterator<Item = (&str, &QuadLine)> {
    record.lines.iter().filter_map(|l| match &l.line {
        Line::Quad(quad) => Some((l.of.as_str(), quad)),
        _ => None,
    })
}

fn log_ratio(record: &ErrorRun, quad: &QuadLine) -> Option<f64> {
    let plans = &record.run.plans;
    let (rule, point) = (plans.real.rules.first()?, plans.series.points.first()?);
    let [a1, b1, b2, a2] =
        quad.samples.each_ref().map(|s| rule.ratio.of(s, *point).unwrap_or(f64::NAN));
    Quad { a1, b1, b2, a2 }.log_ratio()
}

/// What quads of equal arms differ by: within a launch, between launches, and the first of a launch.
fn scatter(record: &ErrorRun) -> Node {
    let mut launches: BTreeMap<(&str, u32), Vec<f64>> = BTreeMap::new();
    let (mut first, mut later) = (Vec::new(), Vec::new());
    let mut before = None;
    for (of, quad) in quads(record).filter(|(of, _)| !of.starts_with("slowed")) {
        let launch = (of, quad.launch);
        let is_first = before.replace(launch) != Some(launch);
        if is_dropped(quad) {
            continue;
        }
        let Some(ratio) = log_ratio(record, quad) else { continue };
        launches.entry(launch).or_default().push(ratio);
        if is_first { &mut first } else { &mut later }.push(ratio);
    }
    let groups: Vec<&[f64]> = launches.values().map(Vec::as_slice).collect();
    let Some(parts) = stats::scatter(&groups) else { return text("") };
    let kept = first.len() + later.len();
    let row = |what: &str, value: String, of: String| -> Node {
        let value = number(element("b").with(value)).with(element("span").class("range").with(of));
        element("tr").with(element("td").with(what)).with(value).into()
    };
    let mean = |what: &str, values: &[f64]| -> Option<Node> {
        let n = values.len() as f64;
        let mean = values.iter().sum::<f64>() / n;
        let square: f64 = values.iter().map(|v| (v - mean).powi(2)).sum();
        let error = (square / (n - 1.0) / n).sqrt();
        let of = format!(
            "standard error {}, {} quads",
            format::percent(error),
            format::count(values.len() as u64)
        );
        (values.len() > 1).then(|| row(what, format::change(mean), of))
    };
    let all = format!(
        "{} quads in {} launches",
        format::count(kept as u64),
        format::count(groups.len() as u64)
    );
    let rows = [
        Some(row("quads of a launch, σ", format::percent(parts.quad), all.clone())),
        Some(row("launches, beyond their quads, τ", format::percent(parts.launch), all)),
        mean("the first quad that a launch records", &first),
        mean("every other quad", &later),
    ];
    section("scatter", "Scatter of equal arms")
        .with(element("p").with(
            "Standard deviations of the logarithm of the ratio, and its mean, over the kept quads of the series and of real runs whose arms are the same.",
        ))
        .with(table(
            "How much the ratio of equal arms differs from 1",
            &[("", "of"), ("number", "ratio")],
            rows.into_iter().flatten().collect(),
        ))
        .into()
}

fn environment(record: &ErrorRun) -> Node {
    let run = &record.run;
    let workload = run.plans.series.points.first().map_or_else(String::new, ToString::to_string);
    let subject = [("Model", run.scenario.model.clone()), ("Workload", workload)];
    let made_by = (&run.machine, &run.build);
    super::environment(&subject, made_by, (&run.started, Some(&run.finished)), []).into()
}

fn reproduce(record: &ErrorRun) -> Node {
    let run = &record.run;
    let words = [run.plans.real.scenario.clone()].into_iter().chain(set_words(&run.scenario.set));
    let command = again(&["scenario", "error-rates"], words);
    section("reproduce", "How to reproduce it").with(command).into()
}

#[cfg(test)]
mod tests {
    use super::render_error_rates;
    use crate::harness::scenario::errors_tests::campaign;

    #[test]
    fn the_page_says_what_holds_and_what_does_not() {
        let page = render_error_rates(&campaign(1.0, 0.98));
        assert!(page.contains("Within limits") && page.contains("30 real runs"));
        assert_eq!(page, render_error_rates(&campaign(1.0, 0.98)));
        let page = render_error_rates(&campaign(1.0, 1.0));
        assert!(page.contains("Not within") && page.contains("missed slowdowns of real runs"));
        let mut broken = campaign(1.0, 1.0);
        broken.lines.clear();
        assert!(render_error_rates(&broken).contains("there is no series"));
    }
}
