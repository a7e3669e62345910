//! The verdict: the word, the ratio, the rule, the interval against its threshold.

use super::super::format;
use super::super::html::{Element, Node, element, text};
use super::super::page::tag;
use super::super::plot::{Anchor, BAD, GOOD, INK, LINE, OPEN, SOFT, Scale, draw};
use super::data::Data;
use crate::harness::scenario::{Comparison, Decision};
use crate::harness::stats::Side;

pub(super) fn verdict(data: &Data<'_>) -> Node {
    let decision = data.verdict.decision;
    let mut row =
        element("div").class("verdict-row").with(element("p").class("word").with(word(decision)));
    if let Some(c) = data.headline() {
        row = row.with(headline(data, c));
    }
    if let Some(expected) = data.record.run.scenario.expected {
        row = row.with(if expected == decision {
            tag("pass", "as expected")
        } else {
            tag("fail", &format!("expected {expected}"))
        });
    }
    let meaning = element("p").with(match decision {
        Decision::Admit => "The whole interval clears every rule.",
        Decision::Decline => declined(data),
        Decision::Inconclusive => "After the last look the interval still contains a threshold.",
        Decision::Invalid => "The measurement cannot be used; nothing is said about the ratio.",
    });
    let reasons =
        element("ul").with_all(data.verdict.reasons.iter().map(|r| element("li").with(r.as_str())));
    let rules: Vec<String> = data.record.run.plan.rules.iter().map(|r| format!("{r}")).collect();
    element("section")
        .class(&format!("verdict {decision}"))
        .attribute("aria-label", "Verdict")
        .with(row)
        .with(meaning)
        .with(element("p").with(element("b").with("Rule: ")).with(rules.join("; and ")))
        .with(ruler(data))
        .with(reasons_folded(decision, reasons))
        .into()
}

/// The reasons, in sight unless everything holds.
fn reasons_folded(decision: Decision, reasons: Element) -> Element {
    let folded = element("details").with(element("summary").with("How the rule came out"));
    match decision {
        Decision::Admit => folded,
        _ => folded.attribute("open", ""),
    }
    .with(reasons)
}

/// Why it is declined: a rule is broken, or a quality budget alone.
fn declined(data: &Data<'_>) -> &'static str {
    let broken = |c: &Comparison| c.rules.iter().any(|(_, side)| *side == Side::Below);
    match data.verdict.comparisons.iter().any(broken) {
        true => "The interval lies on the wrong side of a rule.",
        false => "No rule is broken, but a quality budget is exceeded.",
    }
}

fn word(decision: Decision) -> &'static str {
    match decision {
        Decision::Admit => "Admit",
        Decision::Decline => "Decline",
        Decision::Inconclusive => "Inconclusive",
        Decision::Invalid => "Invalid",
    }
}

fn headline(data: &Data<'_>, c: &Comparison) -> Node {
    let e = &c.estimate;
    element("p")
        .class("headline")
        .with(format!("{} ", c.metric.label()))
        .with(element("b").with(format!("× {}", format::ratio(e.log_ratio))))
        .with(format!(
            " ({}; interval {} to {}){}",
            format::change(e.log_ratio),
            format::ratio(e.lower),
            format::ratio(e.upper),
            data.place(c.point)
        ))
        .into()
}

/// Every ruled interval against its thresholds.
fn ruler(data: &Data<'_>) -> Node {
    let ruled: Vec<&Comparison> =
        data.verdict.comparisons.iter().filter(|c| !c.rules.is_empty()).collect();
    if ruled.is_empty() {
        return text("");
    }
    let thresholds = |c: &Comparison| -> Vec<f64> {
        c.rules
            .iter()
            .flat_map(|(r, _)| [r.lower_bound_at_least, r.upper_bound_at_most])
            .flatten()
            .collect()
    };
    let values = ruled.iter().flat_map(|c| {
        let e = &c.estimate;
        let mut v = thresholds(c);
        v.extend([e.lower.exp(), e.upper.exp(), e.log_ratio.exp(), 1.0]);
        v.into_iter().filter(|v| *v > 0.0)
    });
    let height = 26 + 46 * ruled.len() as u32;
    let (left, right, bottom) = (40, 1060, 92 * ruled.len() as i32 + 6);
    let scale = Scale::over(values, left, right);
    let label = "Confidence intervals of the ratio against the thresholds of the rule";
    let caption = "Ratio candidate / baseline: dot and bar are estimate and interval, the upright stroke is the threshold; the tick says on which side the interval must lie.";
    draw(label, caption, (550, height), |canvas| {
        for (x, label) in scale.ticks() {
            canvas.text(&label, (x, bottom + 24), Anchor::Middle, SOFT);
        }
        for (i, c) in ruled.iter().enumerate() {
            let y = 92 * i as i32 + 58;
            // Grid lines stay out of the line of the name.
            for (x, _) in scale.ticks() {
                canvas.line((x, y - 16), (x, y + 32), LINE, 2);
            }
            canvas.line((scale.at(1.0), y - 16), (scale.at(1.0), y + 32), SOFT, 2);
            let e = &c.estimate;
            let side = c.rules.iter().map(|r| r.1).max_by_key(|s| match s {
                Side::Above => 0,
                Side::Open => 1,
                Side::Below => 2,
            });
            let color = match side {
                Some(Side::Above) => GOOD,
                Some(Side::Below) => BAD,
                _ => OPEN,
            };
            let name = format!("{} {}{}", c.arm, c.metric.label(), data.place(c.point));
            canvas.text(&name, (left, y - 34), Anchor::Start, INK);
            if e.lower.is_finite() {
                canvas.bar(
                    (scale.at(e.lower.exp()), y - 9),
                    (scale.at(e.upper.exp()), y + 9),
                    color,
                    0.35,
                );
            }
            canvas.dot((scale.at(e.log_ratio.exp()), y), 12, color, 1.0);
            for (rule, _) in &c.rules {
                for (threshold, towards) in
                    [(rule.lower_bound_at_least, 1), (rule.upper_bound_at_most, -1)]
                {
                    let Some(t) = threshold else { continue };
                    let x = scale.at(t);
                    canvas.line((x, y - 24), (x, y + 24), INK, 5);
                    canvas.line((x, y - 23), (x + 22 * towards, y - 23), INK, 5);
                }
            }
        }
    })
}
