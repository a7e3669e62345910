//! The page of a survey of planted defects.

use super::format;
use super::html::{Node, element, text};
use super::page::{number, page, section, table, tag};
use crate::harness::mutate::{Mutation, Survey};

/// Renders the page of a survey from its record alone.
pub fn render_survey(survey: &Survey) -> String {
    let run = &survey.run;
    let (killed, of) = (survey.killed(), survey.mutations.len() as u64);
    let heading = match survey.untried() {
        0 => format!("{killed} of {} killed", format::plural(of, "planted defect")),
        untried => format!("{killed} of {of} tried defects killed, {untried} not tried"),
    };
    let body: Node =
        [verdict(survey), survivors(survey), regions(survey), defects(survey), environment(survey)]
            .into_iter()
            .collect();
    let kicker = text(&format!("Assay · can the gates fail? · {}", format::moment(&run.started)));
    let foot = element("p").with(format!(
        "Survey {} · assay {} · rendered from its record alone.",
        run.run_id, run.build.version
    ));
    page(&format!("{heading} · Assay"), kicker, &heading, body, foot.into())
}

fn verdict(survey: &Survey) -> Node {
    let (killed, of) = (survey.killed(), survey.mutations.len() as u64);
    let class = if killed == of && survey.untried() == 0 { "pass" } else { "measured" };
    let share = if of == 0 { "none".into() } else { format::percent(killed as f64 / of as f64) };
    let run = &survey.run;
    element("section")
        .class(&format!("verdict {class}"))
        .attribute("aria-label", "Verdict")
        .with(element("p").class("word").with(share))
        .with(element("p").with(
            "Each defect is one plausible mistake, compiled in behind a switch. With one switch on at a time the gates run until a trial fails; a defect that no gate notices is a survivor.",
        ))
        .with(element("p").with(format!(
            "With every switch off, {} of {} passed in {}.",
            format::plural(run.baseline_trials, "trial"),
            format::plural(run.gates, "gate"),
            format::duration(run.baseline_ms)
        )))
        .with_all((survey.untried() > 0).then(|| {
            element("p").with(format!(
                "{} of the {} switches of this build were not tried: nothing is known of them.",
                survey.untried(),
                survey.run.switches
            ))
        }))
        .into()
}

fn survivors(survey: &Survey) -> Node {
    let rows: Vec<Node> = survey
        .survivors()
        .map(|m| {
            element("tr")
                .with(element("td").with(m.region.as_str()))
                .with(element("td").class("field").with(m.switch.as_str()))
                .with(element("td").with(m.defect.as_str()))
                .with(number(format::count(m.trials)))
                .into()
        })
        .collect();
    let section = section("survivors", "Survivors");
    if rows.is_empty() {
        return section.with(element("p").with("None.")).into();
    }
    let head = [("", "region"), ("", "switch"), ("", "defect"), ("number", "trials that passed")];
    section.with(table("Defects that no gate noticed", &head, rows)).into()
}

fn regions(survey: &Survey) -> Node {
    let rows = survey
        .by_region()
        .into_iter()
        .map(|(region, share)| {
            let whole = share.killed == share.planted;
            let (class, word) =
                if whole { ("pass", "all killed") } else { ("measured", "survivors") };
            element("tr")
                .with(element("td").with(region))
                .with(number(share.planted.to_string()))
                .with(number(share.killed.to_string()))
                .with(element("td").with(tag(class, word)))
                .into()
        })
        .collect();
    let head = [("", "region or area"), ("number", "planted"), ("number", "killed"), ("", "")];
    section("regions", "By region").with(table("Defects by region", &head, rows)).into()
}

fn defects(survey: &Survey) -> Node {
    let killer = |m: &Mutation| -> Node {
        match &m.killed_by {
            None => tag("measured", "survived").into(),
            Some(kill) => [
                Node::from(element("span").class("field").with(kill.trial.as_str())),
                element("span").class("range").with(kill.message.as_str()).into(),
            ]
            .into_iter()
            .collect(),
        }
    };
    let rows = survey
        .mutations
        .iter()
        .map(|m| {
            element("tr")
                .with(
                    element("td")
                        .with(element("span").class("field").with(m.switch.as_str()))
                        .with(
                            element("span")
                                .class("range")
                                .with(format!("{}: {}", m.region, m.defect)),
                        ),
                )
                .with(element("td").class("field").with(killer(m)))
                .with(number(format::count(m.trials)))
                .with(number(format::duration(m.duration_ms)))
                .into()
        })
        .collect();
    let head =
        [("", "defect"), ("", "first trial that failed"), ("number", "trials"), ("number", "time")];
    section("defects", "Every defect").with(table("Every defect", &head, rows)).into()
}

fn environment(survey: &Survey) -> Node {
    let run = &survey.run;
    let subject = [("Switches in the build", run.switches.to_string())];
    let rest = [("Command".to_owned(), run.command.join(" "))];
    let moments = (run.started.as_str(), run.finished.as_deref());
    super::environment(&subject, (&run.machine, &run.build), moments, rest).into()
}

#[cfg(test)]
mod tests {
    use super::render_survey;
    use crate::harness::mutate::tests::made_up;

    #[test]
    fn the_page_names_survivors_and_keeps_markup_inert() {
        let page = render_survey(&made_up(&["rope_base"]));
        assert!(page.contains("the base of the rotary frequencies is doubled"));
        assert!(page.contains("survived"));
        assert!(!page.contains("</script><b>"), "markup of a message is escaped");
        assert_eq!(page, render_survey(&made_up(&["rope_base"])));
        assert!(!page.contains("not tried"));
    }

    #[test]
    fn a_survey_that_was_cut_off_says_so_at_its_head() {
        let mut survey = made_up(&["rope_base"]);
        let all = survey.mutations.len();
        survey.mutations.truncate(all - 7);
        let page = render_survey(&survey);
        let heading = format!("{} of {} tried defects killed, 7 not tried", all - 8, all - 7);
        assert!(page.contains(&heading), "{heading}");
        assert!(page.contains("nothing is known of them"));
    }
}
