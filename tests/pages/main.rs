//! Every kind of page in a real browser: silent, self-contained, inert, readable in both colour
//! schemes, on a narrow screen, on paper and with the keyboard alone.
//!
//! Needs Chromium: `CHROME`, or one on the search path. Without it every test is listed as ignored,
//! with that reason, and counted; none is shown as passed.

mod checks;
mod chromium;
mod made_up;

use chromium::Browser;
use libtest_mimic::{Arguments, Completion, Failed, Trial};
use made_up::Made;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::{Arc, OnceLock};

const ABSENT: &str = "not run: needs Chromium; set CHROME or put it on the search path";

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    let program = chromium::find();
    let made: Arc<OnceLock<Made>> = Arc::default();
    let mut trials = Vec::new();
    for (name, path) in [
        ("gate_run", "reports/gates/report.html"),
        ("hostile_gate_run", "reports/hostile-gates/report.html"),
        ("decision", "reports/decision/report.html"),
        ("declined", "reports/decline/report.html"),
        ("hostile_decision", "reports/hostile-decision/report.html"),
        ("index", "reports/index.html"),
        ("compared_gate_runs", "compare-gates.html"),
        ("compared_decisions", "compare-decisions.html"),
        ("compared_hostile_decisions", "compare-hostile.html"),
        ("hostile_survey", "survey/report.html"),
        ("hostile_error_rates", "error-rates/report.html"),
    ] {
        let (made, program) = (made.clone(), program.clone());
        trials.push(Trial::ignorable_test(name, move || {
            let Some(program) = program else { return Ok(Completion::ignored_with(ABSENT)) };
            look(&program, &made.get_or_init(Made::new).page(path))
        }));
    }
    for page in committed() {
        let program = program.clone();
        let name = format!("committed::{}", page.strip_prefix(root()).unwrap_or(&page).display());
        trials.push(Trial::ignorable_test(name, move || {
            let Some(program) = program else { return Ok(Completion::ignored_with(ABSENT)) };
            look(&program, &page)
        }));
    }
    trials.push(Trial::ignorable_test("every_check_finds_its_planted_defect", move || {
        let Some(program) = program else { return Ok(Completion::ignored_with(ABSENT)) };
        planted(&program)
    }));
    libtest_mimic::run(&arguments, trials).exit_code()
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The pages under `reports/`.
fn committed() -> Vec<PathBuf> {
    let reports = root().join("reports");
    let folders = std::fs::read_dir(&reports).into_iter().flatten().flatten();
    let mut pages: Vec<PathBuf> = folders.map(|e| e.path().join("report.html")).collect();
    pages.push(reports.join("index.html"));
    pages.retain(|p| p.is_file());
    pages.sort();
    pages
}

fn look(program: &Path, page: &Path) -> Result<Completion, Failed> {
    let problems = checks::problems(&mut Browser::start(program)?, page)?;
    if problems.is_empty() {
        return Ok(Completion::Completed);
    }
    Err(Failed::from(format!("{}:\n  {}", page.display(), problems.join("\n  "))))
}

/// A page on which every check has something to find.
const BAD: &str = r##"<!DOCTYPE html>
<html><head><meta charset="utf-8">
<style>
  body { background: #fff; color: #000; margin: 0 }
  .pale { color: #bbb }
  .wide { width: 1500px; background: #eee }
</style></head>
<body><h1>One</h1><h1>Two</h1><h4>Deep</h4>
<p class="pale">Hardly to be seen.</p><p class="wide">Too wide.</p>
<a href="#x" tabindex="-1">never reached</a>
<svg viewBox="0 0 1 1" width="10"></svg>
<img src="http://assay.invalid/x.png" onerror="window.planted = 1">
<script>console.error("a message"); undefined_function();</script>
</body></html>
"##;

fn planted(program: &Path) -> Result<Completion, Failed> {
    let folder = tempfile::tempdir()?;
    let page = folder.path().join("bad.html");
    std::fs::write(&page, BAD)?;
    let found = checks::problems(&mut Browser::start(program)?, &page)?.join("\n");
    for expected in [
        "1280 px, light: console: ",
        "1280 px, light: thrown: ",
        "request: http://assay.invalid/x.png",
        "400 px, light: overflow: the page is 1500 px wide in 400",
        "contrast: 1.92: Hardly to be seen.",
        "both colour schemes have the background",
        "markup: <img src=",
        "markup: <script>",
        "markup: onerror=",
        "markup: a planted script ran",
        "outline: no language",
        "outline: no title",
        "outline: 2 first headings",
        "outline: H4 after level 1: Deep",
        "outline: <svg",
        "keyboard: the first stop is",
        "print: <p class=\"wide\">",
    ] {
        if !found.contains(expected) {
            return Err(Failed::from(format!("no `{expected}` among:\n{found}")));
        }
    }
    Ok(Completion::Completed)
}
