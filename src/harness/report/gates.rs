//! The page of a gate run.

use super::format;
use super::html::{Element, Node, element, prose, text};
use super::page::{again, command, facts, number, page, scroll, section, set_words, table, tag};
use crate::harness::kind::Verdict;
use crate::harness::records::{
    Counts, GateRun, GateSummary, HeatMap, RunSummary, TrialRecord, summarise,
};
use serde_json::Value;

/// Verdicts in the order they are shown.
const ORDER: [Verdict; 5] =
    [Verdict::Fail, Verdict::Error, Verdict::Pass, Verdict::Measured, Verdict::Skip];

/// Renders the page of a gate run from its record alone.
pub fn render_gate_run(run: &GateRun) -> String {
    let summary = summarise(run);
    let body: Node = [
        verdict(&summary),
        failures(&summary),
        tracks(&summary),
        gates(&summary),
        heat_maps(&summary),
        skips(&summary),
        environment(&summary),
        reproduce(&summary),
    ]
    .into_iter()
    .collect();
    let record = &summary.run;
    let kicker = text(&format!("Assay gate run · {}", format::moment(&record.started)));
    let heading = heading(&summary);
    let foot = element("p").with(format!(
        "Run {} · assay {} · rendered from its records alone.",
        record.run_id, record.build.version
    ));
    page(&format!("{heading} · Assay"), kicker, &heading, body, foot.into())
}

fn heading(summary: &RunSummary) -> String {
    let c = &summary.counts;
    let bad = c.fail + c.error;
    if bad > 0 {
        format!("{} of {} failed", format::count(bad), format::plural(c.total(), "trial"))
    } else if summary.missing_trials > 0 {
        format!("{} planned and not run", format::plural(summary.missing_trials, "trial"))
    } else if !summary.run.missing_parts.is_empty() {
        format!("{} missing", format::plural(summary.run.missing_parts.len() as u64, "part"))
    } else if summary.word() == "nothing ran" {
        format!("Nothing ran, {} skipped", format::plural(c.skip, "trial"))
    } else {
        format!("{} passed", format::plural(c.pass, "trial"))
    }
}

fn word(verdict: Verdict) -> (&'static str, &'static str) {
    match verdict {
        Verdict::Pass => ("pass", "passed"),
        Verdict::Fail => ("fail", "failed"),
        Verdict::Error => ("error", "errors"),
        Verdict::Skip => ("skip", "skipped"),
        Verdict::Measured => ("measured", "measured only"),
    }
}

fn verdict(summary: &RunSummary) -> Node {
    let c = &summary.counts;
    let (class, headline) = match summary.word() {
        "passed" => ("pass", "Pass"),
        "nothing ran" => ("skip", "Nothing ran"),
        _ => ("fail", "Fail"),
    };
    let mut totals = element("ul").class("totals");
    for v in ORDER {
        let (class, name) = word(v);
        if c.of(v) > 0 || v == Verdict::Pass || v == Verdict::Fail {
            totals = totals.with(
                element("li")
                    .class(if c.of(v) == 0 { "zero" } else { class })
                    .with(element("b").with(format::count(c.of(v))))
                    .with(name),
            );
        }
    }
    let gates = summary.gates.len() as u64;
    let sentence = format!(
        "{} of {} on {}, in {}.",
        format::plural(c.total(), "trial"),
        format::plural(gates, "gate"),
        summary.run.machine.cpu.as_deref().unwrap_or("an unknown processor"),
        format::duration(summary.run.elapsed_ms)
    );
    let mut open: Vec<String> = summary.run.unestablished.clone();
    if summary.missing_trials > 0 {
        let missing = format::plural(summary.missing_trials, "trial");
        open.push(format!("{missing} planned and without a record: a run was stopped"));
    }
    let mut section = element("section")
        .class(&format!("verdict {class}"))
        .attribute("aria-label", "Verdict")
        .with(element("p").class("word").with(headline))
        .with(element("p").with(sentence))
        .with(totals);
    if !open.is_empty() {
        section = section
            .with(element("p").with(element("b").with("Not established by this run:")))
            .with(element("ul").with_all(open.iter().map(|o| element("li").with(o.as_str()))));
    }
    section.into()
}

fn failures(summary: &RunSummary) -> Node {
    if summary.failures.is_empty() {
        return text("");
    }
    section("failures", "Failures").with_all(summary.failures.iter().map(failure)).into()
}

fn failure(trial: &TrialRecord) -> Element {
    let (class, name) = match trial.verdict {
        Verdict::Error => ("error", "error"),
        _ => ("fail", "fail"),
    };
    let rows: Vec<(String, Node)> =
        trial.evidence.iter().map(|(k, v)| (k.clone(), evidence(v))).collect();
    let mut block = element("div")
        .class("failure")
        .with(element("h3").with(trial.name.as_str()))
        .with(element("p").with(tag(class, name)).with(" ").with(trial.message.as_str()));
    if !rows.is_empty() {
        block = block.with(facts("Evidence", rows));
    }
    block.with(command(["assay", "gates", "run", &trial.name]))
}

fn evidence(value: &Value) -> Node {
    match value {
        Value::String(s) => text(s),
        Value::Object(_) | Value::Array(_) => element("pre")
            .class("wrap")
            .with(serde_json::to_string_pretty(value).unwrap_or_default())
            .into(),
        other => text(&other.to_string()),
    }
}

fn counts(c: &Counts) -> [Node; 5] {
    ORDER.map(|v| {
        let n = c.of(v);
        if n == 0 {
            number(element("span").class("soft").with("·")).into()
        } else if matches!(v, Verdict::Fail | Verdict::Error) {
            number(tag("fail", &format::count(n))).into()
        } else {
            number(format::count(n)).into()
        }
    })
}

const COUNT_HEAD: [(&str, &str); 5] = [
    ("number", "failed"),
    ("number", "errors"),
    ("number", "passed"),
    ("number", "measured only"),
    ("number", "skipped"),
];

fn tracks(summary: &RunSummary) -> Node {
    let rows = summary.by_track.iter().map(|(track, c)| {
        element("tr")
            .with(element("th").attribute("scope", "row").with(capital(&track.to_string())))
            .with_all(counts(c))
            .into()
    });
    let head: Vec<(&str, &str)> = [("", "track")].into_iter().chain(COUNT_HEAD).collect();
    let caption =
        "A measured-only trial is a cell without a claim: finite, reported, never a pass.";
    section("tracks", "By track").with(table(caption, &head, rows.collect())).into()
}

fn gates(summary: &RunSummary) -> Node {
    let rows = summary.gates.iter().map(|g| {
        let (class, name) = match g.verdict {
            _ if g.counts.fail + g.counts.error > 0 => ("fail", "fail"),
            None => ("skip", "not run"),
            Some(v) => match v {
                Verdict::Pass => ("pass", "pass"),
                Verdict::Skip => ("skip", "skipped"),
                Verdict::Measured => ("measured", "measured"),
                Verdict::Fail | Verdict::Error => ("fail", "fail"),
            },
        };
        let part =
            g.gate.part.as_ref().map(|p| format!(" ({p} without --long)")).unwrap_or_default();
        element("tr")
            .with(element("td").with(tag(class, name)))
            .with(
                element("td")
                    .with(element("b").with(g.gate.gate.as_str()))
                    .with(element("span").class("range").with(prose(&g.gate.claim)).with(part)),
            )
            .with(number(format::count(g.counts.total())))
            .with(number(format::duration(g.duration_ms)))
            .into()
    });
    let head = [("", "verdict"), ("", "gate and claim"), ("number", "trials"), ("number", "time")];
    section("gates", "Gates").with(table("Every gate of the run", &head, rows.collect())).into()
}

/// A heat map per gate whose matrix has more than one cell.
fn heat_maps(summary: &RunSummary) -> Node {
    let maps: Vec<Node> = summary
        .gates
        .iter()
        .filter_map(|g| Some((g, g.heat_map.as_ref()?)))
        .filter(|(_, map)| map.rows.len() * map.columns.len() > 3)
        .map(|(gate, map)| heat_map(gate, map))
        .collect();
    if maps.is_empty() {
        return text("");
    }
    let legend = element("p")
        .class("small soft")
        .with("✓ pass · ✗ fail · ! error · ~ measured only · – skipped · empty: no such cell");
    section("matrices", "Matrices").with(legend).with_all(maps).into()
}

fn heat_map(gate: &GateSummary, map: &HeatMap) -> Node {
    let head = element("tr")
        .with(element("th").attribute("scope", "col").with(map.column_axis.as_str()))
        .with_all(
            map.columns.iter().map(|c| element("th").attribute("scope", "col").with(c.as_str())),
        );
    let rows = map.rows.iter().map(|row| {
        element("tr")
            .with(element("th").attribute("scope", "row").with(row.label.as_str()))
            .with_all(row.cells.iter().map(|cell| match cell {
                None => element("td").class("none"),
                Some(v) => {
                    let (class, name) = word(*v);
                    let glyph = match v {
                        Verdict::Pass => "✓",
                        Verdict::Fail => "✗",
                        Verdict::Error => "!",
                        Verdict::Skip => "–",
                        Verdict::Measured => "~",
                    };
                    element("td").class(class).attribute("title", name).with(glyph)
                }
            }))
    });
    let cells: usize = map.rows.iter().map(|r| r.cells.iter().flatten().count()).sum();
    let open = gate.counts.fail + gate.counts.error > 0;
    let name = &gate.gate.gate;
    let grid = element("table")
        .class("heat")
        .with(element("thead").with(head))
        .with(element("tbody").with_all(rows));
    let mut details = element("details");
    // Small matrices and broken ones are open; the rest opens on demand.
    if open || map.rows.len() <= 12 {
        details = details.attribute("open", "");
    }
    details
        .with(
            element("summary").with(name.as_str()).with(
                element("span")
                    .class("soft")
                    .with(format!(" · {}", format::plural(cells as u64, "cell"))),
            ),
        )
        .with(element("p").class("small").with(prose(&gate.gate.claim)))
        .with(scroll(&format!("Verdicts of {name} over its matrix"), grid))
        .into()
}

fn skips(summary: &RunSummary) -> Node {
    let mut body = section("skips", "Skipped and not applicable");
    if summary.skips.is_empty() {
        body = body.with(element("p").with("Nothing was skipped."));
    }
    for group in &summary.skips {
        let names = group.trials.iter().map(|t| element("li").class("mono small").with(t.as_str()));
        body = body.with(
            element("details")
                .with(
                    element("summary")
                        .with(format!("{}: ", format::plural(group.trials.len() as u64, "trial")))
                        .with(element("span").class("soft").with(group.reason.as_str())),
                )
                .with(element("ul").with_all(names)),
        );
    }
    if !summary.not_applicable.is_empty() {
        let rows = summary.not_applicable.iter().map(|n| {
            let cells = [n.gate.clone(), n.device.to_string(), n.policy.clone(), n.reason.clone()];
            element("tr").with_all(cells.map(|c| element("td").with(c))).into()
        });
        let head = [("", "gate"), ("", "device"), ("", "policy"), ("", "reason")];
        let caption = "Policies that a device does not have: no trial, listed once";
        body = body.with(table(caption, &head, rows.collect()));
    }
    body.into()
}

fn environment(summary: &RunSummary) -> Node {
    let run = &summary.run;
    let devices = run.devices.iter().map(|device| {
        let detail = format!("{} × {}", device.count, device.detail);
        (format!("Device {}", device.device), detail)
    });
    let made_by = (&run.machine, &run.build);
    super::environment(&[], made_by, (&run.started, run.finished.as_deref()), devices)
        .with(merged(summary))
        .into()
}

/// The runs that a merged one is made of.
fn merged(summary: &RunSummary) -> Node {
    let runs = &summary.run.merged;
    if runs.is_empty() {
        return text("");
    }
    let rows = runs.iter().map(|run| {
        let part = run.partition.as_deref().unwrap_or("all");
        let devices: Vec<String> = run
            .devices
            .iter()
            .filter(|d| d.count > 0)
            .map(|d| format!("{} × {}", d.count, d.detail))
            .collect();
        element("tr")
            .with(
                element("td")
                    .with(run.run_id.as_str())
                    .with(element("span").class("range").with(format::moment(&run.started))),
            )
            .with(element("td").with(part))
            .with(element("td").with(devices.join(", ")))
            .with(number(format!(
                "{} of {}",
                format::count(run.recorded_trials),
                format::count(run.planned_trials)
            )))
            .with(number(format::duration(run.elapsed_ms)))
            .into()
    });
    let head =
        [("", "run"), ("", "part"), ("", "devices"), ("number", "trials"), ("number", "time")];
    table("The runs this one was merged from", &head, rows.collect())
}

fn reproduce(summary: &RunSummary) -> Node {
    let options = &summary.run.options;
    let mut words: Vec<String> = Vec::new();
    if options.selection.is_empty() {
        words.push("all".into());
    }
    words.extend(options.selection.iter().cloned());
    if options.long {
        words.push("--long".into());
    }
    words.extend(set_words(&options.set));
    section("reproduce", "How to reproduce it").with(again(&["gates", "run"], words)).into()
}

fn capital(words: &str) -> String {
    let mut chars = words.chars();
    chars.next().map_or(String::new(), |c| c.to_uppercase().chain(chars).collect())
}
