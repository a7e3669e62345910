//! The order of the page.

use super::super::format;
use super::super::html::{Node, element};
use super::super::page::page;
use super::data::Data;
use super::{arms, checks, figures, foreign, identity, regions, sweep, top};
use crate::harness::scenario::ScenarioRun;

/// Renders the decision page of a scenario run.
pub fn render_decision(record: &ScenarioRun) -> String {
    let verdict = record.verdict();
    let data = Data::new(record, &verdict);
    let run = &record.run;
    let body: Node = [
        top::verdict(&data),
        arms::metrics(&data),
        sweep::section(&data),
        foreign::section(&data),
        figures::section(&data),
        arms::bound(&data),
        regions::regions(&data),
        arms::quality(&data),
        checks::section(&data),
        identity::difference(&data),
        identity::environment(&data),
        identity::reproduce(&data),
    ]
    .into_iter()
    .collect();
    let kicker: Node = [
        Node::from(format!("Assay decision · {} · ", run.plan.scenario)),
        format!("{} · {}", run.scenario.device, format::moment(&run.started)).into(),
    ]
    .into_iter()
    .collect();
    let foot = element("p").with(format!(
        "Run {} · assay {} · rendered from its record alone; every sample is in record.json.",
        run.run_id, run.build.version
    ));
    let title = format!("{}: {} · Assay", run.plan.scenario, verdict.decision);
    page(&title, kicker, &run.scenario.question, body, foot.into())
}
