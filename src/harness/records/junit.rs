//! A run as JUnit XML, the format that CI systems read.

use super::{RunSummary, TrialRecord};
use crate::harness::kind::Verdict;
use std::fmt::Write as _;

/// The summary and its trials as JUnit XML: a suite per gate, a case per trial that did not pass
/// and a count of those that did. A trial that was planned and did not run is an error there: CI
/// systems go by the file.
pub fn junit(summary: &RunSummary, trials: &[TrialRecord]) -> String {
    let counts = summary.counts;
    let mut xml = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
    let seconds = |ms: u64| format!("{}.{:03}", ms / 1000, ms % 1000);
    // Writing to a string cannot fail.
    let _ = writeln!(
        xml,
        "<testsuites name=\"assay\" tests=\"{}\" failures=\"{}\" errors=\"{}\" skipped=\"{}\" time=\"{}\">",
        counts.total() + summary.missing.len() as u64,
        counts.fail,
        counts.error + summary.missing.len() as u64,
        counts.skip,
        seconds(summary.run.elapsed_ms)
    );
    for gate in &summary.gates {
        let c = gate.counts;
        let prefix = format!("{}/", gate.gate.gate);
        let missing: Vec<_> = summary.missing.iter().filter(|m| m.starts_with(&prefix)).collect();
        let _ = writeln!(
            xml,
            "  <testsuite name=\"{}\" tests=\"{}\" failures=\"{}\" errors=\"{}\" skipped=\"{}\" time=\"{}\" timestamp=\"{}\">",
            escape(&gate.gate.gate),
            c.total() + missing.len() as u64,
            c.fail,
            c.error + missing.len() as u64,
            c.skip,
            seconds(gate.duration_ms),
            escape(&summary.run.started)
        );
        for trial in trials.iter().filter(|t| t.gate == gate.gate.gate) {
            let _ = write!(
                xml,
                "    <testcase classname=\"{}\" name=\"{}\" time=\"{}\"",
                escape(&trial.gate),
                escape(&trial.name),
                seconds(trial.duration_ms)
            );
            let message = escape(&trial.message);
            let _ = match trial.verdict {
                Verdict::Pass => writeln!(xml, "/>"),
                Verdict::Measured => {
                    writeln!(xml, "><system-out>measured: {message}</system-out></testcase>")
                }
                Verdict::Skip => writeln!(xml, "><skipped message=\"{message}\"/></testcase>"),
                Verdict::Fail | Verdict::Error => {
                    let tag = if trial.verdict == Verdict::Fail { "failure" } else { "error" };
                    let evidence = serde_json::Value::from(trial.evidence.clone()).to_string();
                    let evidence = escape(&evidence);
                    writeln!(xml, "><{tag} message=\"{message}\">{evidence}</{tag}></testcase>")
                }
            };
        }
        for name in missing {
            let _ = writeln!(
                xml,
                "    <testcase classname=\"{}\" name=\"{}\"><error message=\"planned and not run\"/></testcase>",
                escape(&gate.gate.gate),
                escape(name)
            );
        }
        xml.push_str("  </testsuite>\n");
    }
    xml.push_str("</testsuites>\n");
    xml
}

/// Text for XML; characters that XML 1.0 has no spelling for become the replacement character.
pub(in crate::harness) fn escape(text: &str) -> String {
    text.chars().fold(String::new(), |mut out, c| {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\n' => out.push_str("&#10;"),
            '\t' => out.push_str("&#9;"),
            '\r' => out.push_str("&#13;"),
            c if u32::from(c) < 0x20 || matches!(c, '\u{fffe}' | '\u{ffff}') => {
                out.push('\u{fffd}')
            }
            c => out.push(c),
        }
        out
    })
}

#[cfg(test)]
mod tests {
    use super::escape;

    #[test]
    fn markup_and_control_characters_are_inert() {
        assert_eq!(
            escape("</testcase><a b=\"&\">"),
            "&lt;/testcase&gt;&lt;a b=&quot;&amp;&quot;&gt;"
        );
        assert_eq!(escape("\u{1b}[31m\n"), "\u{fffd}[31m&#10;");
    }
}
