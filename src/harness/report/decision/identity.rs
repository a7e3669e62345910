//! What the arms were, where they ran, how to run it again.

use super::super::format;
use super::super::html::{Node, element};
use super::super::page::{again, section, set_words, table};
use super::data::Data;
use crate::engine::manifest::compare;
use crate::harness::scenario::manifest_of;

/// The field-level difference of every candidate's manifest from the baseline's.
pub(super) fn difference(data: &Data<'_>) -> Node {
    let run = &data.record.run;
    let arms = data.arms();
    let manifest = |arm: &str| run.arms.get(arm).and_then(|a| manifest_of(&a.manifest));
    let allowed: Vec<String> =
        run.scenario.differs_in.iter().map(|b| b.name().to_string()).collect();
    let allowed = if allowed.is_empty() { "nothing".to_owned() } else { allowed.join(", ") };
    let mut body = section("identity", "What differs between the arms")
        .with(element("p").with(format!("The manifests may differ in: {allowed}.")));
    let Some(baseline) = manifest(&run.plan.baseline) else {
        return body
            .with(element("p").with("No manifest was recorded: no arm was launched."))
            .into();
    };
    let shown = |v: &Option<crate::units::Canonical>| {
        v.as_ref().map_or("absent".to_owned(), |v| v.encode().trim_matches('"').to_owned())
    };
    for arm in arms.into_iter().skip(1) {
        let Some(candidate) = manifest(arm) else { continue };
        let found = compare(&baseline, &candidate);
        let mut rows: Vec<Node> = Vec::new();
        for block in found.blocks.iter().filter(|b| !b.equal()) {
            for field in &block.fields {
                let cells = [
                    block.name.to_string(),
                    field.path.clone(),
                    shown(&field.left),
                    shown(&field.right),
                ];
                rows.push(
                    element("tr")
                        .with_all(cells.map(|c| element("td").class("field").with(c)))
                        .into(),
                );
            }
        }
        let options = |name: &str| {
            run.arms.get(name).map_or(String::new(), |a| {
                let mut text =
                    format!("policy {}, {}", a.policy, format::plural(a.threads as u64, "thread"));
                if let Some(revision) = &a.revision {
                    let short = revision.get(..12).unwrap_or(revision);
                    text.push_str(&format!(", built from revision {short}"));
                }
                if !a.apart.is_empty() {
                    let apart: Vec<String> = a.apart.iter().map(ToString::to_string).collect();
                    text.push_str(&format!(", with {} left undone", apart.join(" and ")));
                }
                if let Some(share) = a.slowdown_ratio {
                    let share = format::percent(share);
                    text.push_str(&format!(", slowed down by {share} on purpose"));
                }
                text
            })
        };
        body = body.with(element("p").with(format!(
            "{} runs {}; {arm} runs {}.",
            run.plan.baseline,
            options(&run.plan.baseline),
            options(arm)
        )));
        let head = [("", "block"), ("", "field"), ("", run.plan.baseline.as_str()), ("", arm)];
        body = if rows.is_empty() {
            body.with(element("p").with("No compared field of the manifests differs."))
        } else {
            body.with(table(
                &format!(
                    "Every compared field that differs: {}",
                    format::plural(rows.len() as u64, "field")
                ),
                &head,
                rows,
            ))
        };
        let equal: Vec<String> = found
            .blocks
            .iter()
            .filter(|b| b.equal())
            .map(|b| format!("{} {}", b.name, b.left_id.short()))
            .collect();
        body = body.with(
            element("p").class("small soft").with(format!("Equal blocks: {}.", equal.join(", "))),
        );
    }
    body.into()
}

pub(super) fn environment(data: &Data<'_>) -> Node {
    let run = &data.record.run;
    let gates: Vec<String> = run
        .gates
        .iter()
        .map(|g| {
            let by = g.arm.as_ref().map_or(String::new(), |arm| format!(", build of {arm}"));
            format!("{} ({}, run {}{by})", g.gate, format::plural(g.trials, "trial"), g.run_id)
        })
        .collect();
    let mut bandwidth: Vec<f64> =
        data.quads.iter().flat_map(|q| q.bandwidth_bytes_per_second.iter().copied()).collect();
    bandwidth.sort_unstable_by(f64::total_cmp);
    let bandwidth = match bandwidth.is_empty() {
        true => "unavailable".to_owned(),
        false => format::gigabytes_per_second(format::quantile(&bandwidth, 0.5)),
    };
    let subject = [
        ("Device", run.scenario.device.to_string()),
        ("Model", run.scenario.model.clone()),
        ("Read bandwidth, median", bandwidth),
    ];
    let gates = if gates.is_empty() { "none".into() } else { gates.join("; ") };
    let rest = [("Gates it rests on".to_owned(), gates)];
    let moments = (run.started.as_str(), run.finished.as_deref());
    super::super::environment(&subject, (&run.machine, &run.build), moments, rest).into()
}

pub(super) fn reproduce(data: &Data<'_>) -> Node {
    let run = &data.record.run;
    let words = [run.plan.scenario.clone()].into_iter().chain(set_words(&run.scenario.set));
    section("reproduce", "How to reproduce it")
        .with(again(&["scenario", "run"], words))
        .with(
            element("details")
                .with(element("summary").with("The scenario file ").with(
                    element("span").class("soft").with(format!(
                        "{} · SHA-256 {}",
                        run.scenario.path,
                        run.scenario.spec_digest.get(..12).unwrap_or_default()
                    )),
                ))
                .with(element("pre").with(element("code").with(run.scenario.text.as_str()))),
        )
        .into()
}
