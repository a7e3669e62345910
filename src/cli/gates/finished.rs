//! What is shown and written of a finished run: by `gates run` and by `report merge`.

use super::table::{Table, count, wrap};
use crate::cli::{Console, Failure, OrExit, Tone};
use crate::harness::Verdict;
use crate::harness::records::{Counts, RunSummary, TrialRecord, junit, markdown};
use crate::units::{Exit, write_whole};
use std::path::Path;

/// Writes the files for other programs.
///
/// # Errors
/// A file cannot be written.
pub(in crate::cli) fn files(
    junit_file: Option<&Path>,
    markdown_file: Option<&Path>,
    summary: &RunSummary,
    trials: &[TrialRecord],
) -> Result<(), Failure> {
    let write = |path: &Path, text: String| {
        write_whole(path, text)
            .or_exit_with(Exit::Io, || format!("cannot write {}", path.display()))
    };
    if let Some(path) = junit_file {
        write(path, junit(summary, trials))?;
    }
    if let Some(path) = markdown_file {
        write(path, markdown(summary))?;
    }
    Ok(())
}

/// `1 trial`, `2 trials`.
pub(in crate::cli) fn trials(number: u64) -> String {
    count(number, "trial")
}

/// The table of gates and the lines under it.
///
/// # Errors
/// Standard output cannot be written.
pub(in crate::cli) fn print(
    summary: &RunSummary,
    interrupted: bool,
    console: &Console,
) -> Result<(), Failure> {
    let mut text = String::new();
    if !console.quiet() {
        let heads = ["gate", "verdict", "pass", "fail", "skip", "measured", "time"];
        let mut table = Table::new(&heads, &[2, 3, 4, 5, 6]);
        for gate in &summary.gates {
            let Counts { pass, fail, error, skip, measured } = gate.counts;
            let some = |n: u64| if n == 0 { String::new() } else { n.to_string() };
            table.row(vec![
                gate.gate.gate.clone(),
                gate.verdict.map_or("not run".to_owned(), |v| v.to_string()),
                some(pass),
                some(fail + error),
                some(skip),
                some(measured),
                seconds(gate.duration_ms),
            ]);
        }
        // Most runs measure and skip nothing: narrow terminals have room for what there is.
        table.drop_empty_columns();
        for (at, line) in table.lines(console.width()).iter().enumerate() {
            let tone = match at.checked_sub(1).map(|i| summary.gates[i].verdict) {
                None => Tone::Strong,
                Some(Some(Verdict::Pass)) => Tone::Good,
                Some(Some(Verdict::Fail | Verdict::Error)) => Tone::Bad,
                Some(_) => Tone::Caution,
            };
            text.push_str(&console.paint(line, tone));
            text.push('\n');
        }
        text.push('\n');
        for group in &summary.skips {
            text.push_str(&wrap(
                &format!(
                    "skipped: {} ({})",
                    group.reason,
                    count(group.trials.len() as u64, "trial")
                ),
                "",
                console.width(),
            ));
            text.push('\n');
        }
        for gate in &summary.gates {
            if let Some(part) = &gate.gate.part {
                text.push_str(&format!("{}: {part}; --long runs all\n", gate.gate.gate));
            }
        }
    } else {
        for trial in &summary.failures {
            text.push_str(&format!("{} {}: {}\n", trial.verdict, trial.name, trial.message));
        }
    }
    text.push_str(&summary_line(summary, interrupted, console));
    console.product(&text)?;
    Ok(())
}

/// One line: how it ended, the counts, and what it could not establish.
fn summary_line(summary: &RunSummary, interrupted: bool, console: &Console) -> String {
    let word = if interrupted { "interrupted" } else { summary.word() };
    let tone = match summary.exit() {
        Exit::Success if word == "passed" => Tone::Good,
        _ if interrupted => Tone::Caution,
        Exit::Success => Tone::Caution,
        _ => Tone::Bad,
    };
    let Counts { pass, fail, error, skip, measured } = summary.counts;
    let mut parts = vec![format!("{pass} passed")];
    for (n, what) in [
        (fail, "failed"),
        (error, if error == 1 { "error" } else { "errors" }),
        (skip, "skipped"),
        (measured, "measured"),
        (summary.missing_trials, "planned and not run"),
    ] {
        if n > 0 {
            parts.push(format!("{n} {what}"));
        }
    }
    let unestablished = &summary.run.unestablished;
    let limits = match unestablished[..] {
        [] => String::new(),
        _ => format!("; not established: {}", unestablished.join("; ")),
    };
    let line = format!("{} in {}{limits}", parts.join(", "), seconds(summary.run.elapsed_ms));
    let wrapped = wrap(&format!("{word}: {line}"), "", console.width());
    wrapped.replacen(word, &console.paint(word, tone), 1) + "\n"
}

fn seconds(ms: u64) -> String {
    if ms < 60_000 {
        format!("{}.{} s", ms / 1000, ms % 1000 / 100)
    } else {
        format!("{} min {} s", ms / 60_000, ms % 60_000 / 1000)
    }
}
