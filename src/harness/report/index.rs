//! The index page of committed reports.

use super::format;
use super::html::{Node, element, prose, text};
use super::page::{number, page, section, table, tag};
use super::store::Record;
use crate::harness::records::summarise;
use crate::harness::scenario::{Comparison, ErrorSummary};

/// A report folder beside the page.
pub(super) struct Entry {
    pub(super) name: String,
    pub(super) record: Record,
}

/// Renders the page; entries are in the order of their names.
pub(super) fn render_index(entries: &[Entry]) -> String {
    let link = |entry: &Entry, words: &str| {
        element("a").attribute("href", &format!("{}/report.html", entry.name)).with(prose(words))
    };
    let mut decisions: Vec<Node> = Vec::new();
    let mut runs: Vec<Node> = Vec::new();
    for entry in entries {
        match &entry.record {
            Record::Decision(record) => {
                let verdict = record.verdict();
                let run = &record.run;
                let ruled = |c: &&Comparison| !c.rules.is_empty();
                let ratio = verdict.comparisons.iter().find(ruled).map_or(text("—"), |c| {
                    let e = &c.estimate;
                    [
                        Node::from(element("b").with(format!("× {}", format::ratio(e.log_ratio)))),
                        element("span")
                            .class("range")
                            .with(format!(
                                "{} – {} {}",
                                format::ratio(e.lower),
                                format::ratio(e.upper),
                                c.metric.label()
                            ))
                            .into(),
                    ]
                    .into_iter()
                    .collect()
                });
                let word = verdict.decision.to_string();
                decisions.push(
                    element("tr")
                        .with(element("td").with(tag(&word, &word)))
                        .with(number(ratio))
                        .with(
                            element("td").with(link(entry, &run.scenario.question)).with(
                                element("span").class("range").with(format!(
                                    "{} · {}",
                                    run.plan.scenario, run.scenario.model
                                )),
                            ),
                        )
                        .with(element("td").with(format!(
                            "{} · {}",
                            run.scenario.device,
                            run.machine.cpu.as_deref().unwrap_or("unknown processor")
                        )))
                        .with(element("td").with(run.started.get(..10).unwrap_or(&run.started)))
                        .into(),
                );
            }
            Record::Errors(run) => {
                let summary = run.summary();
                let holds = summary.as_ref().is_ok_and(|s| s.holds);
                let rate = |of: fn(&ErrorSummary) -> f64| match &summary {
                    Ok(s) => format::percent(of(s)),
                    Err(_) => "unknown".to_owned(),
                };
                let class = if holds { "pass" } else { "fail" };
                runs.push(
                    element("tr")
                        .with(element("td").with(tag(class, "error rates")))
                        .with(element("td").with(link(entry, &entry.name)))
                        .with(number(format!("{} false admits", rate(|s| s.false_admit.share))))
                        .with(number(format!("{} false declines", rate(|s| s.false_decline.share))))
                        .with(number(format!("{} missed", rate(|s| s.missed.share))))
                        .with(
                            element("td")
                                .with(run.run.started.get(..10).unwrap_or(&run.run.started)),
                        )
                        .into(),
                );
            }
            Record::Survey(survey) => {
                let (killed, of) = (survey.killed(), survey.mutations.len() as u64);
                let class = if killed == of { "pass" } else { "measured" };
                runs.push(
                    element("tr")
                        .with(element("td").with(tag(class, "mutants")))
                        .with(element("td").with(link(entry, &entry.name)))
                        .with(number(format!("{} of {} killed", killed, format::count(of))))
                        .with(number(format!("{} survived", of - killed)))
                        .with(number(""))
                        .with(
                            element("td")
                                .with(survey.run.started.get(..10).unwrap_or(&survey.run.started)),
                        )
                        .into(),
                );
            }
            Record::Gates(run) => {
                let summary = summarise(run);
                let class = match summary.word() {
                    "passed" => "pass",
                    "nothing ran" => "skip",
                    _ => "fail",
                };
                let c = &summary.counts;
                runs.push(
                    element("tr")
                        .with(element("td").with(tag(class, class)))
                        .with(element("td").with(link(entry, &entry.name)))
                        .with(number(format!("{} passed", format::count(c.pass))))
                        .with(number(format!("{} failed", c.fail + c.error)))
                        .with(number(format!("{} skipped", format::count(c.skip))))
                        .with(
                            element("td")
                                .with(run.run.started.get(..10).unwrap_or(&run.run.started)),
                        )
                        .into(),
                );
            }
        }
    }
    let head =
        [("", "decision"), ("number", "ratio"), ("", "question"), ("", "device"), ("", "date")];
    let mut body: Vec<Node> = vec![
        section("decisions", "Decisions")
            .with(table(
                "Every committed decision with the ratio that its first rule is about",
                &head,
                decisions,
            ))
            .into(),
    ];
    if !runs.is_empty() {
        let head = [
            ("", "verdict"),
            ("", "run"),
            ("number", ""),
            ("number", ""),
            ("number", ""),
            ("", "date"),
        ];
        body.push(
            section("runs", "Runs")
                .with(table("Committed runs of gates, of mutants and for error rates", &head, runs))
                .into(),
        );
    }
    let foot = element("p")
        .with("Rendered from the record.json of every folder; assay report check compares.");
    page("Reports · Assay", text("Assay"), "Reports", body.into_iter().collect(), foot.into())
}
