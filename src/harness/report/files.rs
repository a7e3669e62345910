//! A run for other programs: JUnit XML for CI, Markdown for a pull request.

use super::ReportError;
use super::format;
use super::store::Record;
use crate::harness::records::{escape_markdown, escape_xml, junit, markdown, summarise};
use crate::harness::scenario::{Comparison, ScenarioRun};
use crate::units::Exit;
use std::fmt::Write as _;
use std::path::Path;

/// The run in a folder as JUnit XML: a suite per gate, or one for a decision.
///
/// # Errors
/// The folder holds no record that this version reads.
pub fn junit_of(run: &Path) -> Result<String, ReportError> {
    Ok(match Record::open(run)? {
        Record::Gates(gates) => junit(&summarise(&gates), &gates.trials),
        Record::Decision(decision) => decision_junit(&decision),
        Record::Survey(_) | Record::Errors(_) => return Err(no_form(run, "JUnit")),
    })
}

/// The run in a folder as Markdown.
///
/// # Errors
/// As [`junit_of`].
pub fn markdown_of(run: &Path) -> Result<String, ReportError> {
    Ok(match Record::open(run)? {
        Record::Gates(gates) => markdown(&summarise(&gates)),
        Record::Decision(decision) => decision_markdown(&decision),
        Record::Survey(_) | Record::Errors(_) => return Err(no_form(run, "Markdown")),
    })
}

fn no_form(run: &Path, form: &str) -> ReportError {
    let message = format!("only gate runs and decisions are written as {form}");
    ReportError::Content { path: run.to_owned(), message }
}

/// A decision is one case: passed if it is the expected one, an error if nothing could be decided.
fn decision_junit(run: &ScenarioRun) -> String {
    let verdict = run.verdict();
    let (failures, errors) = match run.exit() {
        Exit::Success => (0, 0),
        Exit::Inconclusive => (0, 1),
        _ => (1, 0),
    };
    let name = escape_xml(&run.run.plan.scenario);
    let expected = run.run.scenario.expected.map_or(String::new(), |e| format!(", expected {e}"));
    let message = escape_xml(&format!("{}{expected}", verdict.decision));
    let reasons = escape_xml(&verdict.reasons.join("\n"));
    let content = match (failures, errors) {
        (0, 0) => format!("<system-out>{message}&#10;{reasons}</system-out>"),
        (0, _) => format!("<error message=\"{message}\">{reasons}</error>"),
        _ => format!("<failure message=\"{message}\">{reasons}</failure>"),
    };
    let counts = format!("tests=\"1\" failures=\"{failures}\" errors=\"{errors}\" skipped=\"0\"");
    format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites name=\"assay\" {counts}>\n  \
         <testsuite name=\"{name}\" {counts} timestamp=\"{}\">\n    \
         <testcase classname=\"scenario\" name=\"{name}\">{content}</testcase>\n  \
         </testsuite>\n</testsuites>\n",
        escape_xml(&run.run.started)
    )
}

fn decision_markdown(run: &ScenarioRun) -> String {
    let verdict = run.verdict();
    let expected = match run.run.scenario.expected {
        Some(e) if e == verdict.decision => " (as expected)".to_owned(),
        Some(e) => format!(" (expected {e})"),
        None => String::new(),
    };
    let mut text = String::new();
    // Writing to a string cannot fail.
    let _ = writeln!(
        text,
        "### Assay decision: {}: **{}**{expected}\n\n{}\n",
        escape_markdown(&run.run.plan.scenario),
        verdict.decision,
        escape_markdown(&run.run.scenario.question)
    );
    text.push_str("| arm | metric | at | ratio | interval | rule |\n|---|---|---|--:|--:|---|\n");
    for c in &verdict.comparisons {
        let _ = writeln!(
            text,
            "| {} | {} | {} | {} | {} | {} |",
            escape_markdown(&c.arm),
            c.metric.label(),
            escape_markdown(&c.point.to_string()),
            format::ratio(c.estimate.log_ratio),
            interval(c),
            escape_markdown(&rules(c))
        );
    }
    if !verdict.reasons.is_empty() {
        text.push('\n');
    }
    for reason in &verdict.reasons {
        let _ = writeln!(text, "- {}", escape_markdown(reason));
    }
    let _ = writeln!(
        text,
        "\n{} quads on {}, {}",
        verdict.quads,
        escape_markdown(run.run.machine.cpu.as_deref().unwrap_or("an unknown processor")),
        escape_markdown(&run.run.scenario.model)
    );
    text
}

fn interval(c: &Comparison) -> String {
    let (lower, upper) = (format::ratio(c.estimate.lower), format::ratio(c.estimate.upper));
    format!("{lower} – {upper}")
}

fn rules(c: &Comparison) -> String {
    let word = |side: &crate::harness::stats::Side| match side {
        crate::harness::stats::Side::Above => "holds",
        crate::harness::stats::Side::Below => "broken",
        crate::harness::stats::Side::Open => "open",
    };
    let of = c.rules.iter().map(|(rule, side)| format!("{rule}: {}", word(side)));
    of.collect::<Vec<_>>().join("; ")
}
