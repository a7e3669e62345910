//! `assay report compare`.

use crate::cli::table::columns;
use crate::cli::{Console, Failure, OrExit, Tone};
use crate::engine::manifest::BlockName;
use crate::harness::report::{
    Change, DecisionComparison, Found, GateComparison, ReportError, RunComparison, compare_runs,
    render_comparison,
};
use crate::units::{Exit, write_whole};
use clap::ValueEnum;
use std::path::PathBuf;

/// Which runs to compare
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  assay report compare results/20310509t140359z-1f3a results/20310510t091200z-0c
  assay report compare reports/cpu-decode results/NEW --across builds
  assay report compare reports/gates results/NEW --out comparison.html

Medians of two decisions are divided only where model and weights are the same and every other \
difference is declared with --across; otherwise they stand side by side.

Exit codes: 0 B is as good as A or better; 1 a trial got worse, or the decision is another; 64 one is \
a gate run and one a decision; 74 a record could not be read.")]
pub(super) struct Args {
    /// The run compared with: a run folder, or a report folder
    #[arg(value_name = "A")]
    left: PathBuf,
    /// The run compared
    #[arg(value_name = "B")]
    right: PathBuf,
    /// A difference between two decisions that is meant
    #[arg(long, value_name = "WHAT")]
    across: Vec<Across>,
    /// Write the comparison as a page
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Across {
    /// Two commits
    Builds,
    /// Two hosts
    Machines,
    /// Two numerical policies
    Policies,
    /// Two placements
    Deployments,
}

impl Across {
    fn block(self) -> BlockName {
        match self {
            Across::Builds => BlockName::Build,
            Across::Machines => BlockName::Run,
            Across::Policies => BlockName::NumericalPolicy,
            Across::Deployments => BlockName::Deployment,
        }
    }
}

/// Trials listed before the rest is counted.
const LISTED: usize = 20;

/// Compares the runs.
pub(super) fn run(args: &Args, console: &Console) -> Result<Exit, Failure> {
    let declared: Vec<BlockName> = args.across.iter().map(|a| a.block()).collect();
    let comparison = match compare_runs(&args.left, &args.right, &declared) {
        Ok(comparison) => comparison,
        Err(error @ ReportError::Content { .. }) => return Err(Failure::usage(error)),
        Err(error) => return Err(error).or_exit(Exit::Io),
    };
    if console.json() {
        console.product_json(&comparison)?;
    } else {
        console.product(&text(&comparison, console))?;
    }
    if let Some(path) = &args.out {
        write_whole(path, render_comparison(&comparison))
            .or_exit_with(Exit::Io, || format!("cannot write {}", path.display()))?;
        console.note(&format!("report: {}", path.display()));
    }
    Ok(comparison.exit())
}

fn text(comparison: &RunComparison, console: &Console) -> String {
    let mut text = String::new();
    for (name, side) in [("A", &comparison.left), ("B", &comparison.right)] {
        text += &format!("{name}  {}  {}  {}\n", side.run_id, side.started, side.outcome);
    }
    text.push('\n');
    if !comparison.facts.is_empty() {
        let cut = |value: &str| match value.char_indices().nth(24) {
            Some((at, _)) => format!("{}…", &value[..at]),
            None => value.to_owned(),
        };
        let row =
            |f: &crate::harness::report::Fact| vec![f.name.clone(), cut(&f.left), cut(&f.right)];
        text += &columns(&comparison.facts.iter().map(row).collect::<Vec<_>>(), &[]);
        text.push('\n');
    }
    match &comparison.found {
        Found::GateRuns(found) => text += &gates(found),
        Found::Decisions(found) => text += &decisions(found),
    }
    let tone = match comparison.word() {
        "worse" => Tone::Bad,
        "changed" => Tone::Caution,
        _ => Tone::Good,
    };
    let word = console.paint(comparison.word(), tone);
    text + &format!("{word}: {}\n", sentence(comparison))
}

fn sentence(comparison: &RunComparison) -> String {
    match &comparison.found {
        Found::GateRuns(found) => format!(
            "{} trials with the same verdict, {} worse, {} better, {} other",
            found.same,
            found.worse(),
            found.better(),
            found.changes.len() - found.worse() - found.better()
        ),
        Found::Decisions(found) if found.left == found.right => {
            format!("both decide {}", found.left)
        }
        Found::Decisions(found) => format!("A decides {}, B decides {}", found.left, found.right),
    }
}

fn gates(found: &GateComparison) -> String {
    let mut text = String::new();
    for change in found.changes.iter().take(LISTED) {
        let verdict =
            |v: Option<crate::harness::Verdict>| v.map_or("absent".to_owned(), |v| v.to_string());
        let word = match change.change {
            Change::Worse => "worse",
            Change::Better => "better",
            Change::Other => "other",
        };
        let (left, right) = (verdict(change.left), verdict(change.right));
        text += &format!("{word}: {} ({left} → {right})\n", change.name);
        if change.change == Change::Worse && !change.message.is_empty() {
            text += &format!("    {}\n", change.message);
        }
    }
    let more = found.changes.len().saturating_sub(LISTED);
    if more > 0 {
        text += &format!("and {more} more; --json and --out list all\n");
    }
    for (side, gates) in [("A", &found.only_left), ("B", &found.only_right)] {
        if !gates.is_empty() {
            let names: Vec<&str> = gates.keys().map(String::as_str).collect();
            text += &format!("not compared, only in {side}: {}\n", names.join(", "));
        }
    }
    if !text.is_empty() {
        text.push('\n');
    }
    text
}

fn decisions(found: &DecisionComparison) -> String {
    let mut rows = vec![["ratio to the baseline", "A", "B", ""].map(str::to_owned).to_vec()];
    let bounds = |[estimate, lower, upper]: [Option<f64>; 3]| {
        let three = |v: Option<f64>| v.map_or("?".to_owned(), |v| format!("{v:.3}"));
        format!("{} [{}, {}]", three(estimate), three(lower), three(upper))
    };
    for r in &found.ratios {
        let note = if r.overlap { "" } else { "apart" };
        rows.push(vec![
            format!("{} {} at {}", r.arm, r.metric.label(), r.point),
            bounds(r.left),
            bounds(r.right),
            note.to_owned(),
        ]);
    }
    let mut text = columns(&rows, &[]) + "\n";
    let mut rows = vec![["median", "A", "B", "B / A"].map(str::to_owned).to_vec()];
    for v in &found.values {
        rows.push(vec![
            format!("{} {} at {}, {}", v.arm, v.metric.label(), v.point, v.metric.unit()),
            format!("{:.3}", v.left),
            format!("{:.3}", v.right),
            v.ratio.map_or("not divided".to_owned(), |r| format!("{r:.3}")),
        ]);
    }
    text += &columns(&rows, &[1, 2, 3]);
    for (arm, admissible) in &found.arms {
        for reason in &admissible.reasons {
            text += &format!("{arm} is not divided: {reason}\n");
        }
    }
    text + "\n"
}
