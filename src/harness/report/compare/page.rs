//! The page of a comparison.

use super::super::format;
use super::super::html::{Node, element, text};
use super::super::page::{command, facts, page, section};
use super::{Found, RunComparison, section as parts};

/// Renders a comparison as a page.
pub fn render_comparison(comparison: &RunComparison) -> String {
    let (heading, body) = match &comparison.found {
        Found::GateRuns(found) => (parts::gate_heading(found), parts::gate_sections(found)),
        Found::Decisions(found) => {
            (parts::decision_heading(found), parts::decision_sections(found))
        }
    };
    let body: Node = [verdict(comparison), body, provenance(comparison), reproduce(comparison)]
        .into_iter()
        .collect();
    let kicker = text(&format!(
        "Assay comparison · {} → {}",
        format::moment(&comparison.left.started),
        format::moment(&comparison.right.started)
    ));
    let foot = element("p").with(format!(
        "Runs {} and {} · rendered from their records alone.",
        comparison.left.run_id, comparison.right.run_id
    ));
    page(&format!("{heading} · Assay"), kicker, &heading, body, foot.into())
}

fn verdict(comparison: &RunComparison) -> Node {
    let (class, word) = match comparison.word() {
        "worse" => ("fail", "Worse"),
        "better" => ("pass", "Better"),
        "changed" => ("inconclusive", "Changed"),
        _ => ("pass", "Same"),
    };
    let sentence = match &comparison.found {
        Found::GateRuns(found) => parts::gate_sentence(found),
        Found::Decisions(found) => parts::decision_sentence(found),
    };
    let side = |name: &str, side: &super::Side| {
        let words = format!("run {}, {}", side.run_id, format::moment(&side.started));
        let value: Node = [
            Node::from(element("b").with(side.outcome.as_str())),
            element("span").class("range").with(words).into(),
        ]
        .into_iter()
        .collect();
        (name.to_owned(), value)
    };
    element("section")
        .class(&format!("verdict {class}"))
        .attribute("aria-label", "Verdict")
        .with(element("p").class("word").with(word))
        .with(element("p").with(sentence))
        .with(facts(
            "The two runs",
            vec![side("A", &comparison.left), side("B", &comparison.right)],
        ))
        .into()
}

fn provenance(comparison: &RunComparison) -> Node {
    let section = section("provenance", "How the runs were made");
    if comparison.facts.is_empty() {
        let same = "Build, machine, options and spec files are the same.";
        return section.with(element("p").with(same)).into();
    }
    let rows = comparison
        .facts
        .iter()
        .map(|f| parts::cells([f.name.as_str(), f.left.as_str(), f.right.as_str()]))
        .collect();
    let head = [("", "fact"), ("", "A"), ("", "B")];
    section.with(super::super::page::table("Facts that differ", &head, rows)).into()
}

fn reproduce(comparison: &RunComparison) -> Node {
    let folder = |run: &str| format!("results/{run}");
    let (left, right) = (folder(&comparison.left.run_id), folder(&comparison.right.run_id));
    section("reproduce", "How to reproduce it")
        .with(command(["assay", "report", "compare", &left, &right]))
        .into()
}
