//! What the candidates lose in quality, against the budgets.

use super::super::html::{Node, element};
use super::super::page::{number, table};
use crate::harness::scenario::{Figures, QualityMetric, QualityRecord};

/// The table of figures and the budgets, or why there are none.
pub(super) fn evidence(quality: Option<&QualityRecord>) -> Node {
    let record = match quality {
        None => {
            let sentence = "No quality budget is part of this scenario: speed alone is decided.";
            return element("p").with(sentence).into();
        }
        Some(QualityRecord::Unavailable { reason }) => {
            let sentence = format!("Quality was not measured, speed alone is decided: {reason}.");
            return element("p").with(sentence).into();
        }
        Some(record) => record,
    };
    let QualityRecord::Measured {
        corpus,
        corpus_sha256,
        window_tokens,
        scored_tokens,
        baseline_nll_nats,
        arms,
        ..
    } = record
    else {
        return Node::from(String::new());
    };
    let about = format!(
        "Teacher-forced on {scored_tokens} tokens of {corpus} (SHA-256 {}…) in windows of \
         {window_tokens}; the baseline has {baseline_nll_nats:.4} nats per token. Figures are of the \
         rows that decode computes.",
        corpus_sha256.get(..12).unwrap_or_default()
    );
    let columns = [
        QualityMetric::NllDeltaNats,
        QualityMetric::Top1Agreement,
        QualityMetric::LogitRms,
        QualityMetric::LogitMaxAbs,
        QualityMetric::KlMeanNats,
    ];
    let names = columns.map(|metric| metric.to_string());
    let head: Vec<(&str, &str)> = std::iter::once(("", "arm"))
        .chain(names.iter().map(|name| ("number", name.as_str())))
        .collect();
    let row = |(arm, figures): (&String, &Figures)| -> Node {
        let cells = columns.iter().map(|metric| {
            number(figures.get(*metric).map_or("-".into(), |value| format!("{value:.4}")))
        });
        let head = element("th").attribute("scope", "row").with(arm.as_str());
        element("tr").with(head).with_all(cells).into()
    };
    let results = record.results().into_iter().map(|result| {
        let word = if result.holds { "holds" } else { "exceeded" };
        Node::from(element("li").with(format!("{word}: {}", result.sentence)))
    });
    let list = results.fold(element("ul"), |list, item| list.with(item));
    [
        element("p").with(about).into(),
        table(
            "Quality of the candidates beside the baseline",
            &head,
            arms.iter().map(row).collect(),
        ),
        list.into(),
    ]
    .into_iter()
    .collect()
}
