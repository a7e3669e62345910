//! `assay scenario list` and `assay scenario lint`.

use super::super::console::Tone;
use super::super::table::wrap;
use super::super::{Console, Failure};
use crate::harness::scenario::Plan;
use crate::units::Exit;
use serde_json::json;
use std::collections::BTreeMap;

/// Which scenarios to list
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  assay scenario list
  assay scenario list --json")]
pub(super) struct Args {
    /// Names or files; every scenario of the project without any
    #[arg(value_name = "SCENARIO")]
    scenarios: Vec<String>,
}

/// Which scenarios to check
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  assay scenario lint
  assay scenario lint ./mine.yaml")]
pub(super) struct LintArgs {
    /// Names or files; every scenario of the project without any
    #[arg(value_name = "SCENARIO")]
    scenarios: Vec<String>,
}

/// Prints the list.
pub(super) fn run(args: &Args, console: &Console) -> Result<Exit, Failure> {
    let files = super::selected(&args.scenarios)?;
    if console.json() {
        let list: Vec<_> = files
            .iter()
            .map(|f| {
                json!({
                    "scenario": f.name(), "question": f.question(), "track": f.spec.track,
                    "path": f.path, "arms": f.arms().keys().collect::<Vec<_>>(),
                    "devices": f.spec.profiles.keys().collect::<Vec<_>>(),
                    "points": Plan::of(f).points, "expect_decision": f.spec.expect_decision,
                })
            })
            .collect();
        console.product_json(&list)?;
        return Ok(Exit::Success);
    }
    let width = files.iter().map(|f| f.name().len()).max().unwrap_or(0);
    for file in &files {
        let name = console.paint(&format!("{:width$}", file.name()), Tone::Strong);
        let indent = " ".repeat(width + 2);
        let question = wrap(file.question(), &indent, console.width());
        console.product(&format!("{name}  {}\n", question.trim_start()))?;
    }
    Ok(Exit::Success)
}

/// Checks files; the first mistake ends with its place.
pub(super) fn lint(args: &LintArgs, console: &Console) -> Result<Exit, Failure> {
    let files = super::selected(&args.scenarios)?;
    super::check_surroundings(&files, &BTreeMap::new())?;
    for file in &files {
        console.product(&format!("{}: well-formed\n", file.name()))?;
    }
    Ok(Exit::Success)
}
