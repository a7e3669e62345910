//! A run as Markdown, for a pull request comment or the summary of a CI step.

use super::RunSummary;
use std::fmt::Write as _;

/// Failures shown in full; the rest is counted.
const SHOWN_FAILURES: usize = 20;

/// The summary as Markdown.
pub fn markdown(summary: &RunSummary) -> String {
    let counts = summary.counts;
    let word = match summary.word() {
        "failed" => "**failed**",
        other => other,
    };
    let missing = match summary.missing_trials {
        0 => String::new(),
        n => format!(", {n} planned and not run"),
    };
    let mut text = String::new();
    // Writing to a string cannot fail.
    let _ = writeln!(
        text,
        "### Assay gates: {word}\n\n{} passed, {} failed, {} errors, {} skipped, {} measured{missing} on {}, {} s\n",
        counts.pass,
        counts.fail,
        counts.error,
        counts.skip,
        counts.measured,
        escape(summary.run.machine.cpu.as_deref().unwrap_or("an unknown processor")),
        summary.run.elapsed_ms / 1000
    );
    for sentence in &summary.run.unestablished {
        let _ = writeln!(text, "Not established: {}\n", escape(sentence));
    }
    text.push_str("| gate | track | verdict | pass | fail | skip | measured |\n");
    text.push_str("|---|---|---|--:|--:|--:|--:|\n");
    for gate in &summary.gates {
        let c = gate.counts;
        let verdict = gate.verdict.map_or("not run".to_owned(), |v| v.to_string());
        let _ = writeln!(
            text,
            "| {} | {} | {verdict} | {} | {} | {} | {} |",
            escape(&gate.gate.gate),
            gate.gate.track,
            c.pass,
            c.fail + c.error,
            c.skip,
            c.measured
        );
    }
    if !summary.failures.is_empty() {
        text.push_str("\n#### Failures\n\n");
        for trial in summary.failures.iter().take(SHOWN_FAILURES) {
            let name = escape(&trial.name);
            let _ = writeln!(text, "- **{name}** ({}): {}", trial.verdict, escape(&trial.message));
        }
        let more = summary.failures.len().saturating_sub(SHOWN_FAILURES);
        if more > 0 {
            let _ = writeln!(text, "- and {more} more");
        }
    }
    if !summary.missing.is_empty() {
        text.push_str("\n#### Planned and not run\n\n");
        for name in summary.missing.iter().take(SHOWN_FAILURES) {
            let _ = writeln!(text, "- {}", escape(name));
        }
        let more = summary.missing.len().saturating_sub(SHOWN_FAILURES);
        if more > 0 {
            let _ = writeln!(text, "- and {more} more");
        }
    }
    if !summary.skips.is_empty() {
        text.push_str("\n#### Skipped\n\n");
        for group in &summary.skips {
            let _ = writeln!(text, "- {} trials: {}", group.trials.len(), escape(&group.reason));
        }
    }
    text
}

/// Text that Markdown and HTML show as it is, on one line.
pub(in crate::harness) fn escape(text: &str) -> String {
    text.chars().fold(String::new(), |mut out, c| {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '\\' | '`' | '*' | '_' | '[' | ']' | '|' | '#' | '~' | '@' => {
                out.push('\\');
                out.push(c);
            }
            c if c.is_control() => out.push(' '),
            c => out.push(c),
        }
        out
    })
}
