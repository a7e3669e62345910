//! `assay doctor`: what this machine has, what is missing, and what that costs.

use super::console::Tone;
use super::{Console, Failure};
use crate::harness::doctor::{Facts, Finding, State, findings};
use crate::units::Exit;
use serde_json::json;

/// Nothing to choose: it looks at everything.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  assay doctor          what this machine has, what is missing, what that costs
  assay doctor --json   the same as data")]
pub(super) struct Args {}

/// Prints the findings.
pub(super) fn run(_: Args, console: &Console) -> Result<Exit, Failure> {
    let found = findings(&Facts::probe());
    if console.json() {
        console.product_json(&json!({ "findings": found }))?;
    } else {
        console.product(&render(&found, console))?;
    }
    Ok(Exit::Success)
}

/// Columns of a line.
const WIDTH: usize = 80;
/// Where the text of a finding begins: after the state and the topic.
const INDENT: usize = 27;

fn render(found: &[Finding], console: &Console) -> String {
    let mut text = String::new();
    for finding in found {
        let state = format!("{:<12}", finding.state.as_str());
        let tone = match finding.state {
            State::Ok => Tone::Good,
            State::Limited => Tone::Caution,
            State::Missing => Tone::Bad,
            State::Unavailable => Tone::Dim,
        };
        let mut lines = wrap(&finding.found, WIDTH - INDENT).into_iter();
        let first = lines.next().unwrap_or_default();
        text += &format!("{}{:<15}{first}\n", console.paint(&state, tone), finding.topic);
        let labelled = [("costs", &finding.costs), ("remedy", &finding.remedy)];
        let more = labelled.into_iter().filter_map(|(label, t)| Some((label, t.as_ref()?)));
        for line in lines {
            text += &format!("{:INDENT$}{line}\n", "");
        }
        for (label, sentence) in more {
            let label = format!("{label}: ");
            let width = WIDTH - INDENT - label.len();
            for (i, line) in wrap(sentence, width).into_iter().enumerate() {
                let label = if i == 0 { label.clone() } else { " ".repeat(label.len()) };
                text += &format!("{:INDENT$}{}{line}\n", "", console.paint(&label, Tone::Dim));
            }
        }
    }
    let count = |state| found.iter().filter(|f| f.state == state).count();
    let (ok, limited) = (count(State::Ok), count(State::Limited));
    let (missing, unavailable) = (count(State::Missing), count(State::Unavailable));
    text + &format!("\n{ok} ok, {limited} limited, {missing} missing, {unavailable} unavailable\n")
}

/// Lines of at most `width` characters, broken at spaces.
fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split(' ') {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}
