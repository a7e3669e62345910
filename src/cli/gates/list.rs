//! `assay gates list`.

use super::table::{Table, count};
use super::{Console, Failure, Selection};
use crate::cli::{OrExit, Tone};
use crate::harness::run::Launch;
use crate::units::Exit;
use serde_json::json;

/// Which gates to list
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  assay gates list
  assay gates list 'tag:refusal'
  assay gates list all --trials     every trial by its stable name")]
pub(super) struct Args {
    #[command(flatten)]
    selection: Selection,
    /// List trials instead of gates
    #[arg(long)]
    trials: bool,
}

impl Args {
    /// As typed without options.
    pub(super) fn of(selection: Selection) -> Args {
        Args { selection, trials: false }
    }
}

/// Prints the list.
pub(super) fn run(args: Args, console: &Console) -> Result<Exit, Failure> {
    let launched = launch(&args.selection)?.plan().or_exit(Exit::Usage)?;
    let plan = &launched.plan;
    if console.json() {
        let gates = plan.gates.iter().map(|g| {
            let file = &g.file;
            let mine = plan.trials.iter().filter(|t| plan.gate_of(t).name == file.name);
            let trials: Vec<_> = mine.map(|t| json!({ "name": t.name, "skip": t.skip })).collect();
            json!({
                "gate": file.name, "claim": file.claim, "track": file.track, "kind": file.kind_name,
                "tags": file.tags, "path": file.path, "part": g.part, "trials": trials,
            })
        });
        console.product_json(&json!({
            "gates": gates.collect::<Vec<_>>(),
            "not_applicable": plan.not_applicable,
        }))?;
        return Ok(Exit::Success);
    }
    if args.trials {
        let mut text = String::new();
        for trial in &plan.trials {
            let skip = trial.skip.as_ref().map(|reason| format!("  (skip: {reason})"));
            text.push_str(&format!("{}{}\n", trial.name, skip.unwrap_or_default()));
        }
        console.product(&text)?;
        return Ok(Exit::Success);
    }
    // On a narrow terminal the claim says more than the track.
    let wide = console.width() >= 100;
    let heads: &[&str] = &["gate", "trials", "skips", "track", "claim"];
    let heads: Vec<&str> = heads.iter().copied().filter(|h| wide || *h != "track").collect();
    let mut table = Table::new(&heads, &[1, 2]);
    for (at, gate) in plan.gates.iter().enumerate() {
        let mine = || plan.trials.iter().filter(|t| t.gate == at);
        let skips = mine().filter(|t| t.skip.is_some()).count();
        let mut row = vec![
            gate.file.name.clone(),
            mine().count().to_string(),
            if skips == 0 { String::new() } else { skips.to_string() },
            gate.file.claim.clone(),
        ];
        if wide {
            row.insert(3, gate.file.track.to_string());
        }
        table.row(row);
    }
    table.drop_empty_columns();
    let mut lines = table.lines(console.width());
    lines[0] = console.paint(&lines[0], Tone::Strong);
    console.product(&(lines.join("\n") + "\n"))?;
    let skips = plan.trials.iter().filter(|t| t.skip.is_some()).count() as u64;
    console.note(&format!(
        "{}, {}, {} cannot run here",
        count(plan.gates.len() as u64, "gate"),
        count(plan.trials.len() as u64, "trial"),
        skips
    ));
    for gate in plan.gates.iter().filter(|g| g.part.is_some()) {
        if let Some(part) = &gate.part {
            console.note(&format!("{}: {part} without --long", gate.file.name));
        }
    }
    for sentence in plan.unestablished(&launched.devices) {
        console.note(&format!("cannot be established: {sentence}"));
    }
    Ok(Exit::Success)
}

/// A launch for planning only.
pub(super) fn launch(selection: &Selection) -> Result<Launch, Failure> {
    let root = selection.root()?;
    let out = root.clone().unwrap_or_default().join("results");
    Ok(Launch {
        root,
        selection: selection.gates(),
        long: selection.long,
        set: selection.set()?,
        partition: None,
        jobs: 1,
        fail_fast: false,
        shuffle: None,
        resume: None,
        out,
        program: std::env::current_exe()?,
        command: crate::cli::command_line(),
        interrupted: Default::default(),
    })
}
