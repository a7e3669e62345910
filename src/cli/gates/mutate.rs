//! `assay gates mutate`: can the gates fail?

use super::table::{Table, count, cut};
use super::{Console, Failure};
use crate::cli::{OrExit, Tone};
use crate::harness::mutate::{Mutation, Subject, baseline, build, survey};
use crate::harness::{glob_matches, project_root};
use crate::units::{Exit, MUTANTS, Mutant};
use std::path::PathBuf;

/// Which defects to plant
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  assay gates mutate                every switch against the gates about its region
  assay gates mutate rope_base      one switch
  assay gates mutate --list         the switches, their regions and what each breaks
  assay gates mutate --all-gates    every gate against every switch

Builds the feature `mutants` in target/mutants (cargo is needed), then runs the gates with one
switch on at a time until a trial fails. Exit code 1 if a defect survives.")]
pub(super) struct Args {
    /// Names or globs of switches
    #[arg(value_name = "SWITCH")]
    switches: Vec<String>,
    /// List the switches and stop
    #[arg(long)]
    list: bool,
    /// Run every gate instead of those about the switch's region first
    #[arg(long)]
    all_gates: bool,
    /// Use this binary, built with the feature `mutants`, instead of building one
    #[arg(long, value_name = "FILE")]
    binary: Option<PathBuf>,
}

/// Runs the survey.
pub(super) fn run(args: &Args, console: &Console) -> Result<Exit, Failure> {
    let selected = |mutant: &&Mutant| {
        args.switches.is_empty() || args.switches.iter().any(|s| glob_matches(s, mutant.name))
    };
    let mutants: Vec<&Mutant> = MUTANTS.iter().filter(selected).collect();
    if let Some(word) =
        args.switches.iter().find(|s| !MUTANTS.iter().any(|m| glob_matches(s, m.name)))
    {
        let near = crate::units::nearest(word, MUTANTS.iter().map(|m| m.name));
        let hint = near.map(|n| format!("; did you mean `{n}`?")).unwrap_or_default();
        return Err(Failure::usage(format!("no switch is called `{word}`{hint}")));
    }
    if args.list {
        return list(&mutants, console);
    }
    let root = project_root(&std::env::current_dir()?).ok_or_else(|| {
        Failure::usage("there is no `gates` folder here or above; run inside the project")
    })?;
    let program = match &args.binary {
        Some(program) => program.clone(),
        None => {
            console.note("building with planted defects (feature `mutants`) …");
            build(&root).or_exit(Exit::Io)?
        }
    };
    let subject = Subject { root, program, all_gates: args.all_gates };
    console.note("checking that the gates pass with every switch off …");
    baseline(&subject).or_exit(Exit::Fail)?;
    let mut survivors = Vec::new();
    let mut rows = Vec::new();
    for mutant in &mutants {
        let mutation = survey(&subject, mutant).or_exit(Exit::Internal)?;
        let killed_by = mutation.killed_by.as_deref().unwrap_or("survived");
        console.note(&cut(&format!("{}: {killed_by}", mutant.name), console.width()));
        if mutation.killed_by.is_none() {
            survivors.push(**mutant);
        }
        rows.push(mutation);
    }
    print(&rows, &survivors, console)?;
    Ok(if survivors.is_empty() { Exit::Success } else { Exit::Fail })
}

fn list(mutants: &[&Mutant], console: &Console) -> Result<Exit, Failure> {
    if console.json() {
        let rows: Vec<_> = mutants
            .iter()
            .map(
                |m| serde_json::json!({ "switch": m.name, "region": m.region, "defect": m.defect }),
            )
            .collect();
        console.product_json(&rows)?;
        return Ok(Exit::Success);
    }
    let mut table = Table::new(&["switch", "region", "defect"], &[]);
    for mutant in mutants {
        table.row(vec![mutant.name.into(), mutant.region.into(), mutant.defect.into()]);
    }
    let mut lines = table.lines(console.width());
    lines[0] = console.paint(&lines[0], Tone::Strong);
    console.product(&(lines.join("\n") + "\n"))?;
    Ok(Exit::Success)
}

fn print(rows: &[Mutation], survivors: &[Mutant], console: &Console) -> Result<(), Failure> {
    let killed = rows.len() - survivors.len();
    if console.json() {
        let survivors: Vec<_> = survivors
            .iter()
            .map(
                |m| serde_json::json!({ "switch": m.name, "region": m.region, "defect": m.defect }),
            )
            .collect();
        console.product_json(&serde_json::json!({
            "killed": killed, "of": rows.len(), "mutants": rows, "survivors": survivors,
        }))?;
        return Ok(());
    }
    let mut table = Table::new(&["switch", "region", "trials", "killed by"], &[2]);
    for row in rows {
        table.row(vec![
            row.switch.clone(),
            row.region.clone(),
            row.trials.to_string(),
            row.killed_by.clone().unwrap_or_else(|| "SURVIVED".into()),
        ]);
    }
    let mut text = table.lines(console.width()).join("\n");
    text.push_str(&format!("\n\n{killed} of {} killed", count(rows.len() as u64, "defect")));
    for mutant in survivors {
        text.push_str(&format!(
            "\nsurvivor in {}: {} ({})",
            mutant.region, mutant.name, mutant.defect
        ));
    }
    console.product(&(text + "\n"))?;
    Ok(())
}
