//! `assay scenario show`.

use super::super::table::wrap;
use super::super::{Console, Failure};
use crate::harness::scenario::{Arm, ArmWeights, Plan, model_source};
use crate::units::Exit;
use std::fmt::Write as _;

/// Which scenario to show
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  assay scenario show cpu-decode
  assay scenario show cpu-decode --set 'measure.quads=[20]'")]
pub(super) struct Args {
    /// A name or a file
    #[arg(value_name = "SCENARIO")]
    scenario: String,
    /// Give a value in place of the file's, as `scenario run` takes it
    #[arg(long = "set", value_name = "KEY=VALUE", value_parser = super::key_value)]
    set: Vec<(String, String)>,
}

/// Prints the question, the plan and the rule.
pub(super) fn run(args: &Args, console: &Console) -> Result<Exit, Failure> {
    let set = crate::cli::set_values(&args.set)?;
    let selected = super::selected(std::slice::from_ref(&args.scenario))?.swap_remove(0);
    let file = &selected.with(&set).map_err(Failure::usage)?;
    let plan = Plan::of(file);
    if console.json() {
        console.product_json(&plan)?;
        return Ok(Exit::Success);
    }
    let question = wrap(file.question(), "", console.width());
    let mut text = format!("{}\n{question}\n\n", file.name());
    let mut line = |name: &str, value: String| {
        writeln!(text, "{name:<12}{value}").expect("writing to a string");
    };
    let device = super::run::default_device(file);
    line("profile", device.to_string());
    match model_source(file, device, &set) {
        Ok(model) => line("model", model.to_string()),
        Err(e) => line("model", format!("not available: {}", e.message)),
    }
    for (name, arm) in file.arms() {
        let arm = wrap(&format!("{name}: {}", describe(arm)), &" ".repeat(12), console.width());
        line("arm", arm.trim_start().to_owned());
    }
    for point in &plan.points {
        line("workload", point.to_string());
    }
    let looks: Vec<String> = plan.looks.quads.iter().map(usize::to_string).collect();
    line(
        "quads",
        format!("{} (looks), {} per launch", looks.join(", "), plan.looks.quads_per_launch),
    );
    if let Some(quality) = file.quality() {
        for budget in &quality.budgets {
            line("budget", budget.to_string());
        }
    }
    for rule in &plan.rules {
        line("admit when", rule.to_string());
    }
    if let Some(expected) = file.spec.expect_decision.get(&device) {
        line("expected", expected.to_string());
    }
    line("gates", file.spec.gates.join(", "));
    console.product(&text)?;
    Ok(Exit::Success)
}

fn describe(arm: &Arm) -> String {
    let threads = arm.threads.map_or("every processor".into(), |t| t.to_string());
    if let Some(recorded) = &arm.recorded {
        return format!("`{}` of {}, no ratio", recorded.arm, recorded.report.display());
    }
    if let Some(command) = &arm.command {
        return format!("live peer, threads {threads}: {}", command.join(" "));
    }
    let policy = arm.policy.map_or("default".into(), |p| p.to_string());
    let mut text = format!("policy {policy}, threads {threads}");
    if let Some(build) = &arm.build {
        text.push_str(&format!(", build {build}"));
    }
    if arm.weights == ArmWeights::Int4 {
        let group = arm.group_size.map(|g| format!(", groups of {g}")).unwrap_or_default();
        let prefill = arm.prefill.map(|p| format!(", prefill {p}")).unwrap_or_default();
        text.push_str(&format!(", weights int4{group}{prefill}: {}", arm.roles.join(" ")));
    }
    let fusions: Vec<String> = arm.fusions.iter().map(ToString::to_string).collect();
    let apart: Vec<String> = arm.apart.iter().map(ToString::to_string).collect();
    for (what, names) in [("fusions", fusions), ("apart", apart)] {
        if !names.is_empty() {
            text.push_str(&format!(", {what} {}", names.join(" ")));
        }
    }
    if let Some(share) = arm.slowdown_ratio {
        text.push_str(&format!(", slowed down by {}%", 100.0 * share));
    }
    text
}
