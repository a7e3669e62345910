//! Runs a campaign: the parts one after the other, each an ordinary run in a folder of its own.
//!
//! The series may be divided, its parts spread between the runs. The folder `<run-id>.partial` holds one run folder per part. A campaign that is stopped or killed
//! goes on where it was: finished parts are kept, the part under way is resumed launch by launch.

use super::errors::{device_name, plans};
use super::start::record;
use super::{
    CAMPAIGN_VERSION, CampaignKind, CampaignRecord, ErrorRateSpec, ErrorRun, NamedLine, Part, Plan,
    RunEnd, RunError, RunRequest, ScenarioRecord, ScenarioRun, Watch, load_scenario_run,
    run_scenario,
};
use crate::harness::records::RecordError;
use crate::harness::stats::MIN_SERIES_QUADS;
use crate::units::utc_now;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// A campaign to run or to continue.
#[derive(Debug)]
pub struct Campaign<'a> {
    pub request: RunRequest<'a>,
    pub spec: &'a ErrorRateSpec,
    /// The `.partial` folder of an earlier part of it.
    pub resume: Option<PathBuf>,
}

/// How a campaign ended.
#[derive(Debug)]
pub enum CampaignEnd {
    /// It is complete; the folder holds `record.json`.
    Complete { folder: PathBuf, run: Box<ErrorRun> },
    /// It was stopped; `--resume` continues it.
    Stopped { folder: PathBuf },
}

/// Told which part runs, beside what a run tells.
pub trait CampaignWatch: Watch {
    /// Part `index` of `parts` starts.
    fn part(&mut self, name: &str, index: usize, parts: usize);
}

/// The parts in the order they are measured. Real and slowed runs alternate and the parts of the
/// series stand evenly between them, so that none has the better hour.
fn parts(spec: &ErrorRateSpec) -> Vec<String> {
    let mut names = Vec::new();
    let mut series = 0;
    for i in 1..=spec.real_runs {
        while series * spec.real_runs < (i - 1) * spec.series_parts + 1 {
            series += 1;
            names.push(format!("series-{series:03}"));
        }
        names.push(format!("real-{i:03}"));
        names.push(format!("slowed-{i:03}"));
    }
    names
}

/// Runs a campaign or continues one.
///
/// # Errors
/// As [`run_scenario`]; a campaign that another file, build or machine began is refused.
pub fn run_campaign(
    campaign: &Campaign<'_>,
    watch: &mut dyn CampaignWatch,
) -> Result<CampaignEnd, RunError> {
    let base = record(&campaign.request);
    let plans = plans(&base, campaign.spec);
    let folder = match &campaign.resume {
        Some(folder) => folder.clone(),
        None => campaign.request.out.join(format!("{}-error-rates.partial", base.run_id)),
    };
    std::fs::create_dir_all(&folder).map_err(writing("make the folder", &folder))?;
    let names = parts(campaign.spec);
    let mut finished: Vec<ScenarioRun> = Vec::new();
    let mut lost = 0;
    let begun = Instant::now();
    for (index, name) in names.iter().enumerate() {
        watch.part(name, index, names.len());
        let plan = match name.split('-').next() {
            Some("series") => &plans.series,
            Some("slowed") => &plans.slowed,
            _ => &plans.real,
        };
        match one_part(campaign, &folder, name, plan, watch)? {
            Some(run) => {
                if name.starts_with("series") {
                    let kept = plans.kept(&run.lines).map_or(0, |k| k.len());
                    lost += plan.most_quads().saturating_sub(kept);
                }
                // Rates come of the series: without it the other parts would be measured in vain.
                let wanted = campaign.spec.series_quads;
                if wanted.saturating_sub(lost) < MIN_SERIES_QUADS.min(wanted) {
                    return Err(RunError::ShortSeries { lost, wanted });
                }
                finished.push(run);
            }
            None => return Ok(CampaignEnd::Stopped { folder }),
        }
    }
    let run =
        assemble(campaign, base, plans, &folder, &names, finished, begun.elapsed().as_millis());
    let path = folder.join("record.json");
    std::fs::write(&path, encode(&run).map_err(|e| writing("write", &path)(e.into()))?)
        .map_err(writing("write", &path))?;
    let done = folder.with_file_name(&run.run.run_id);
    std::fs::rename(&folder, &done).map_err(writing("rename the folder to", &done))?;
    Ok(CampaignEnd::Complete { folder: done, run: Box::new(run) })
}

/// One part: read if it is complete, continued if it began, else run. `None`: stopped.
fn one_part(
    campaign: &Campaign<'_>,
    folder: &Path,
    name: &str,
    plan: &Plan,
    watch: &mut dyn CampaignWatch,
) -> Result<Option<ScenarioRun>, RunError> {
    let complete = folder.join(name);
    if complete.join("run.json").is_file() {
        let found = load_scenario_run(&complete)?.content;
        let now = record(&campaign.request);
        let reason = if found.run.build.digest != now.build.digest {
            "the build has changed"
        } else if found.run.scenario.spec_digest != now.scenario.spec_digest {
            "the scenario file has changed"
        } else if !found.run.machine.is_like(&now.machine) {
            "this is another machine"
        } else {
            return Ok(Some(found));
        };
        return Err(RunError::Resume { folder: folder.to_owned(), reason: reason.into() });
    }
    let partial = folder.join(format!("{name}.partial"));
    let earlier = match partial.join("run.json").is_file() {
        true => Some(load_scenario_run(&partial)?),
        false => {
            // Killed before its first record: nothing was measured.
            let _ = std::fs::remove_dir_all(&partial);
            None
        }
    };
    let slowed = name.starts_with("slowed");
    let part = Part {
        run_id: name.to_owned(),
        plan: plan.clone(),
        slowdown_ratio: slowed.then_some(campaign.spec.slowdown_ratio),
    };
    let request = RunRequest { out: folder, part: Some(part), ..campaign.request.clone() };
    match run_scenario(&request, earlier, &mut Inner(watch))? {
        RunEnd::Decided { run, .. } => Ok(Some(*run)),
        RunEnd::Stopped { .. } => Ok(None),
    }
}

/// Hands a campaign's watch to a run.
struct Inner<'a>(&'a mut dyn CampaignWatch);

impl Watch for Inner<'_> {
    fn progress(&mut self, kept: usize, wanted: usize, doing: &str) {
        self.0.progress(kept, wanted, doing);
    }

    fn stopped(&self) -> bool {
        self.0.stopped()
    }
}

fn assemble(
    campaign: &Campaign<'_>,
    base: ScenarioRecord,
    plans: super::Plans,
    folder: &Path,
    names: &[String],
    finished: Vec<ScenarioRun>,
    elapsed_ms: u128,
) -> ErrorRun {
    let id = folder.file_name().map_or_else(String::new, |n| n.to_string_lossy().into_owned());
    let mut lines = Vec::new();
    let mut refusals = BTreeMap::new();
    let started = finished.first().map_or_else(|| base.started.clone(), |r| r.run.started.clone());
    for (name, run) in names.iter().zip(finished) {
        if !run.run.refusals.is_empty() {
            refusals.insert(name.clone(), run.run.refusals);
        }
        lines.extend(run.lines.into_iter().map(|line| NamedLine { of: name.clone(), line }));
    }
    let run = CampaignRecord {
        schema_version: CAMPAIGN_VERSION,
        kind: CampaignKind::ErrorRates,
        run_id: id.trim_end_matches(".partial").to_owned(),
        command: base.command,
        started,
        finished: utc_now(),
        build: base.build,
        machine: base.machine,
        device_name: device_name(base.scenario.device),
        scenario: base.scenario,
        gates: base.gates,
        spec: campaign.spec.clone(),
        plans,
        refusals,
        elapsed_ms: u64::try_from(elapsed_ms).unwrap_or(u64::MAX),
    };
    ErrorRun { run, lines }
}

/// The content of `record.json`: one line of text per recorded line.
fn encode(run: &ErrorRun) -> serde_json::Result<String> {
    let mut text =
        format!("{{\n\"run\": {},\n\"lines\": [", serde_json::to_string_pretty(&run.run)?);
    for (i, line) in run.lines.iter().enumerate() {
        text.push_str(if i == 0 { "\n" } else { ",\n" });
        text.push_str(&serde_json::to_string(line)?);
    }
    text.push_str("\n]\n}\n");
    Ok(text)
}

fn writing(action: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> RunError {
    let path = path.to_owned();
    move |source| RunError::Record(RecordError::Write { action, path, source })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_the_series_stand_evenly_between_the_runs() {
        let spec = ErrorRateSpec {
            series_quads: 400,
            series_parts: 2,
            pseudo_runs: 1000,
            real_runs: 4,
            quads: vec![20],
            launches: 4,
            slowdown_ratio: 0.02,
            at_most: 0.01,
            missed_at_most: 0.05,
        };
        let names = parts(&spec);
        let place = |name: &str| names.iter().position(|n| n == name).unwrap();
        assert_eq!((place("series-001"), place("series-002")), (0, 5), "{names:?}");
        assert_eq!(names.len(), 2 + 4 + 4);
    }
}
