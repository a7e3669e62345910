//! The sections of a comparison page that are about trials or about ratios.

use super::super::format;
use super::super::html::{Node, element, text};
use super::super::page::{number, section, table, tag};
use super::{Change, DecisionComparison, GateComparison, TrialChange};
use crate::harness::kind::Verdict;
use serde_json::Value;

/// Rows of a table before the rest is counted.
const SHOWN_ROWS: usize = 200;

/// A row of plain cells, long words of which may break.
pub(super) fn cells<const N: usize>(cells: [&str; N]) -> Node {
    element("tr").with_all(cells.map(|c| element("td").class("field").with(c))).into()
}

pub(super) fn gate_heading(found: &GateComparison) -> String {
    match (found.worse(), found.better()) {
        (0, 0) => format!("{} as before", format::plural(found.same, "trial")),
        (0, n) => format!("{} better", format::plural(n as u64, "trial")),
        (n, 0) => format!("{} worse", format::plural(n as u64, "trial")),
        (w, b) => format!("{} worse, {b} better", format::plural(w as u64, "trial")),
    }
}

pub(super) fn gate_sentence(found: &GateComparison) -> String {
    let other = found.changes.len() - found.worse() - found.better();
    let mut sentence = format!(
        "{} with the same verdict, {} worse, {} better",
        format::plural(found.same, "trial"),
        found.worse(),
        found.better()
    );
    if other > 0 {
        sentence += &format!(", {other} with another verdict of the same weight");
    }
    if !found.evidence.is_empty() {
        let mut names: Vec<&str> = found.evidence.iter().map(|e| e.name.as_str()).collect();
        names.dedup();
        sentence +=
            &format!("; the evidence of {} differs", format::plural(names.len() as u64, "trial"));
    }
    sentence + "."
}

pub(super) fn gate_sections(found: &GateComparison) -> Node {
    [changes(found), totals(found), evidence(found), apart(found)].into_iter().collect()
}

fn word(verdict: Option<Verdict>) -> Node {
    match verdict {
        None => element("span").class("soft").with("absent").into(),
        Some(v) => {
            let class = if v == Verdict::Error { "fail".to_owned() } else { v.to_string() };
            tag(&class, &v.to_string()).into()
        }
    }
}

fn changes(found: &GateComparison) -> Node {
    if found.changes.is_empty() {
        return text("");
    }
    let row = |change: &TrialChange| -> Node {
        let (class, name) = match change.change {
            Change::Worse => ("fail", "worse"),
            Change::Better => ("pass", "better"),
            Change::Other => ("measured", "other"),
        };
        element("tr")
            .with(element("td").with(tag(class, name)))
            .with(element("td").with(word(change.left)))
            .with(element("td").with(word(change.right)))
            .with(
                element("td")
                    .class("field")
                    .with(change.name.as_str())
                    .with(element("span").class("range").with(change.message.as_str())),
            )
            .into()
    };
    let head = [("", "change"), ("", "A"), ("", "B"), ("", "trial and message")];
    let rows: Vec<Node> = found.changes.iter().take(SHOWN_ROWS).map(row).collect();
    section("changes", "Changed trials")
        .with(table("Trials whose verdict differs, worse ones first", &head, rows))
        .with(more(found.changes.len()))
        .into()
}

fn more(total: usize) -> Node {
    match total.saturating_sub(SHOWN_ROWS) {
        0 => text(""),
        n => element("p").class("soft").with(format!("and {n} more, listed by --json")).into(),
    }
}

fn totals(found: &GateComparison) -> Node {
    let row = |name: &str, c: &crate::harness::records::Counts| -> Node {
        element("tr")
            .with(element("th").attribute("scope", "row").with(name))
            .with_all([c.pass, c.fail, c.error, c.measured, c.skip].map(|n| {
                if n == 0 {
                    number(element("span").class("soft").with("·"))
                } else {
                    number(format::count(n))
                }
            }))
            .into()
    };
    let head = [
        ("", "run"),
        ("number", "passed"),
        ("number", "failed"),
        ("number", "errors"),
        ("number", "measured only"),
        ("number", "skipped"),
    ];
    let rows = vec![row("A", &found.left), row("B", &found.right)];
    section("totals", "Totals").with(table("All trials of each run", &head, rows)).into()
}

fn evidence(found: &GateComparison) -> Node {
    if found.evidence.is_empty() {
        return text("");
    }
    let shown = |v: &Value| match v {
        Value::Null => "absent".to_owned(),
        Value::String(s) => s.clone(),
        other => other.to_string(),
    };
    let rows: Vec<Node> = found
        .evidence
        .iter()
        .take(SHOWN_ROWS)
        .map(|e| cells([&e.name, &e.field, &shown(&e.left), &shown(&e.right)]))
        .collect();
    let head = [("", "trial"), ("", "field"), ("", "A"), ("", "B")];
    let caption = "Evidence that differs although the verdict is the same";
    section("evidence", "Evidence")
        .with(table(caption, &head, rows))
        .with(more(found.evidence.len()))
        .into()
}

fn apart(found: &GateComparison) -> Node {
    if found.only_left.is_empty() && found.only_right.is_empty() {
        return text("");
    }
    let mut rows: Vec<Node> = Vec::new();
    for (side, gates) in [("A", &found.only_left), ("B", &found.only_right)] {
        for (gate, trials) in gates {
            rows.push(
                element("tr")
                    .with(element("td").with(gate.as_str()))
                    .with(element("td").with(side))
                    .with(number(format::count(*trials)))
                    .into(),
            );
        }
    }
    let head = [("", "gate"), ("", "only in"), ("number", "trials")];
    section("apart", "Not compared")
        .with(table("Gates that only one of the runs selected", &head, rows))
        .into()
}

pub(super) fn decision_heading(found: &DecisionComparison) -> String {
    let [a, b] = &found.scenarios;
    if a == b { format!("{a}: {} and {}", found.left, found.right) } else { format!("{a} and {b}") }
}

pub(super) fn decision_sentence(found: &DecisionComparison) -> String {
    let apart = found.ratios.iter().filter(|r| !r.overlap).count();
    let decisions = if found.left == found.right {
        format!("Both runs decide {}.", found.left)
    } else {
        format!("A decides {}, B decides {}.", found.left, found.right)
    };
    format!(
        "{decisions} {} of {} have intervals without a value in common.",
        apart,
        format::plural(found.ratios.len() as u64, "ratio")
    )
}

pub(super) fn decision_sections(found: &DecisionComparison) -> Node {
    [ratios(found), values(found), identities(found)].into_iter().collect()
}

fn ratios(found: &DecisionComparison) -> Node {
    let cell = |[estimate, lower, upper]: [Option<f64>; 3]| {
        let three = |v: Option<f64>| v.map_or("no bound".to_owned(), |v| format!("{v:.3}"));
        number(element("b").with(three(estimate))).with(
            element("span").class("range").with(format!("{} – {}", three(lower), three(upper))),
        )
    };
    let rows = found
        .ratios
        .iter()
        .map(|r| {
            let (class, word) = if r.overlap { ("pass", "overlap") } else { ("measured", "apart") };
            element("tr")
                .with(
                    element("td")
                        .with(format!("{} {}", r.arm, r.metric.label()))
                        .with(element("span").class("range").with(r.point.to_string())),
                )
                .with(cell(r.left))
                .with(cell(r.right))
                .with(element("td").with(tag(class, word)))
                .into()
        })
        .collect();
    let head = [("", "ratio to the baseline"), ("number", "A"), ("number", "B"), ("", "intervals")];
    section("ratios", "Ratios")
        .with(table("What each run found, with its own interval", &head, rows))
        .into()
}

fn values(found: &DecisionComparison) -> Node {
    let rows = found
        .values
        .iter()
        .map(|v| {
            let ratio = v.ratio.map_or("not divided".to_owned(), |r| format!("{r:.3}"));
            element("tr")
                .with(
                    element("td")
                        .with(format!("{} {}", v.arm, v.metric.label()))
                        .with(element("span").class("range").with(v.point.to_string())),
                )
                .with(number(format!("{} {}", format::value(v.left), v.metric.unit())))
                .with(number(format!("{} {}", format::value(v.right), v.metric.unit())))
                .with(number(ratio))
                .into()
        })
        .collect();
    let head = [("", "median of"), ("number", "A"), ("number", "B"), ("number", "B / A")];
    let caption =
        "Medians of each run; not paired, so a quotient has no interval and decides nothing";
    let mut body = section("values", "Absolute values").with(table(caption, &head, rows));
    for (arm, admissible) in &found.arms {
        for reason in &admissible.reasons {
            body = body
                .with(element("p").class("small").with(format!("{arm} is not divided: {reason}.")));
        }
        if !admissible.declared.is_empty() && admissible.reasons.is_empty() {
            let blocks = admissible.declared.join(", ");
            let words = format!("{arm}: the declared difference in {blocks} is part of B / A.");
            body = body.with(element("p").class("small").with(words));
        }
    }
    body.into()
}

fn identities(found: &DecisionComparison) -> Node {
    let mut body = section("identities", "What differs between the arms of the two runs");
    let mut any = false;
    for (arm, admissible) in found.arms.iter().filter(|(_, a)| !a.fields.is_empty()) {
        any = true;
        let rows = admissible.fields.iter().map(|[a, b, c, d]| cells([a, b, c, d])).collect();
        let head = [("", "block"), ("", "field"), ("", "A"), ("", "B")];
        body = body.with(table(&format!("Manifest fields of arm {arm}"), &head, rows));
    }
    if !any {
        body = body.with(element("p").with("No compared field of the manifests differs."));
    }
    body.into()
}
