//! `assay gates show`.

use super::table::wrap;
use super::{Console, Failure, Selection, list};
use crate::cli::{OrExit, Tone};
use crate::units::Exit;

/// Which gate to show
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  assay gates show region-inventory
  assay gates show ./mine.yaml")]
pub(super) struct Args {
    #[command(flatten)]
    selection: Selection,
}

/// Prints each gate selected.
pub(super) fn run(args: Args, console: &Console) -> Result<Exit, Failure> {
    if console.json() {
        return list::run(list::Args::of(args.selection), console);
    }
    let launched = list::launch(&args.selection)?.plan().or_exit(Exit::Usage)?;
    let plan = &launched.plan;
    let mut text = String::new();
    for (at, gate) in plan.gates.iter().enumerate() {
        let file = &gate.file;
        let tags = if file.tags.is_empty() {
            String::new()
        } else {
            format!(", tags {}", file.tags.join(" "))
        };
        text.push_str(&format!("{}\n", console.paint(&file.name, Tone::Strong)));
        text.push_str(&wrap(&file.claim, "  ", console.width()));
        let facts = format!(
            "kind {}, track {}{tags}, at most {} ms a trial",
            file.kind_name, file.track, file.timeout_ms
        );
        let here = std::env::current_dir().unwrap_or_default();
        let path = file.path.strip_prefix(&here).unwrap_or(&file.path);
        text.push('\n');
        text.push_str(&wrap(&facts, "  ", console.width()));
        text.push_str(&format!("\n  {}\n", path.display()));
        if let Some(part) = &gate.part {
            text.push_str(&format!("  {part} without --long\n"));
        }
        for entry in plan.not_applicable.iter().filter(|n| n.gate == file.name) {
            text.push_str(&wrap(
                &format!("not applicable: {} on {}: {}", entry.policy, entry.device, entry.reason),
                "  ",
                console.width(),
            ));
            text.push('\n');
        }
        text.push('\n');
        for trial in plan.trials.iter().filter(|t| t.gate == at) {
            let name = trial.name.strip_prefix(&file.name).unwrap_or(&trial.name);
            text.push_str(&format!("    {}", name.trim_start_matches('/')));
            if let Some(reason) = &trial.skip {
                text.push_str(&console.paint(&format!("  skip: {reason}"), Tone::Caution));
            }
            text.push('\n');
        }
        text.push('\n');
    }
    console.product(&text)?;
    Ok(Exit::Success)
}
