//! How often the harness errs: the record of a campaign, and what follows from it.
//!
//! A campaign has three parts, all on arms that execute the same thing. The *series* is a long
//! A/A run, whole or in parts, that pseudo-runs are resampled out of. *Real* runs decide about the
//! same two arms with the threshold at a ratio of 1, where every admit and every decline is an
//! error. *Slowed* runs are the same with a slowdown of known size injected, where everything but a
//! decline is a miss.

use super::decide::kept_series;
use super::{
    Decision, ErrorRateSpec, GateEvidence, Line, Plan, ScenarioFacts, ScenarioRecord, Turn, decide,
};
use crate::backend::DeviceKind;
use crate::harness::devices;
use crate::harness::records::{BuildRecord, MachineRecord};
use crate::harness::stats::{
    ErrorRates, Launched, LookPlan, Outcomes, Proportion, clopper_pearson, error_rates,
    hodges_lehmann,
};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The seed of resampling: any fixed one, so that a report renders the same twice.
const RESAMPLING_SEED: u64 = 1;

/// Version of the record format.
pub const CAMPAIGN_VERSION: u32 = 1;

/// What kind of record this is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CampaignKind {
    ErrorRates,
}

/// Everything about a campaign that is not a sample.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CampaignRecord {
    pub schema_version: u32,
    pub kind: CampaignKind,
    pub run_id: String,
    /// The command line, as typed.
    pub command: Vec<String>,
    /// RFC 3339, UTC.
    pub started: String,
    /// RFC 3339, UTC.
    pub finished: String,
    pub build: BuildRecord,
    pub machine: MachineRecord,
    /// The GPU that measured; absent on the CPU and in older records.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device_name: Option<String>,
    pub scenario: ScenarioFacts,
    pub gates: Vec<GateEvidence>,
    pub spec: ErrorRateSpec,
    pub plans: Plans,
    /// Reasons that make a run invalid whatever was measured, by its name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub refusals: BTreeMap<String, Vec<String>>,
    /// Wall time of the sitting that finished it.
    pub elapsed_ms: u64,
}

/// The plans of the three parts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plans {
    pub series: Plan,
    pub real: Plan,
    pub slowed: Plan,
}

impl Plans {
    /// The data of a part of the series: its quads that count, in the metric of the rule.
    ///
    /// # Errors
    /// There is no rule or no candidate.
    pub(super) fn kept(&self, series: &[Line]) -> Result<Vec<Launched>, String> {
        let metric = self.real.rules.first().ok_or("there is no rule")?.ratio;
        let arm = self.real.candidates.first().ok_or("there is no candidate")?;
        Ok(kept_series(&self.series, series, 0, arm, metric))
    }
}

/// A recorded line and the run it belongs to: `series-001`, `real-007`, `slowed-030`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NamedLine {
    pub of: String,
    pub line: Line,
}

/// A campaign; the content of its `record.json`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ErrorRun {
    pub run: CampaignRecord,
    pub lines: Vec<NamedLine>,
}

/// What a campaign came to.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Errors {
    /// Out of pseudo-runs.
    pub resampled: ErrorRates,
    /// Real runs with the true ratio at the threshold; `invalid` counts as inconclusive.
    pub real: Outcomes,
    /// Real runs with the injected slowdown.
    pub slowed: Outcomes,
    /// Median half width of the interval of the real runs, in log units.
    pub half_width: f64,
    /// What does not hold, one sentence each.
    pub problems: Vec<String>,
}

/// The figures that every decision report on the same machine shows.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ErrorSummary {
    pub run_id: String,
    /// RFC 3339, UTC.
    pub started: String,
    pub series_quads: usize,
    pub pseudo_runs: u64,
    pub real_runs: u64,
    pub slowed_runs: u64,
    pub false_admit: Rate,
    pub false_decline: Rate,
    pub slowdown_ratio: f64,
    pub missed: Rate,
    /// Whether the real runs agree with the resampled ones and every rate is within its limit.
    pub holds: bool,
    /// How the campaign measured; absent in older records.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub procedure: Option<Procedure>,
}

/// What the rates of a campaign are rates of.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Procedure {
    pub model: String,
    /// The workload, in words.
    pub workload: String,
    pub turn: Turn,
    pub looks: LookPlan,
}

/// A rate from pseudo-runs with its exact 99% interval, and the count of real runs beside it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rate {
    pub share: f64,
    pub lower: f64,
    pub upper: f64,
    /// Real runs that erred.
    pub real: u64,
}

impl ErrorRun {
    /// The rates, from the record alone.
    ///
    /// # Errors
    /// The series is too short, or a part is missing.
    pub fn errors(&self) -> Result<Errors, String> {
        let CampaignRecord { spec, plans, refusals, .. } = &self.run;
        let mut runs: BTreeMap<&str, Vec<Line>> = BTreeMap::new();
        for NamedLine { of, line } in &self.lines {
            runs.entry(of).or_default().push(line.clone());
        }
        if !runs.keys().any(|name| name.starts_with("series")) {
            return Err("there is no series".into());
        }
        let mut kept: Vec<Launched> = Vec::new();
        for (_, part) in runs.iter().filter(|(name, _)| name.starts_with("series")) {
            // Launches of different parts are different launches; whether they loaded their arms in
            // reverse stays.
            let first = kept.last().map_or(0, |last| (last.launch + 1).next_multiple_of(2));
            kept.extend(
                plans.kept(part)?.into_iter().map(|d| Launched { launch: first + d.launch, ..d }),
            );
        }
        let (runs_wanted, share) = (spec.pseudo_runs, spec.slowdown_ratio);
        let resampled = error_rates(&kept, &plans.real.looks, runs_wanted, share, RESAMPLING_SEED)
            .map_err(|e| e.to_string())?;
        let mut half_widths = Vec::new();
        let mut part = |prefix: &str, plan: &Plan| -> Result<Outcomes, String> {
            let mut counts = [0u64; 3];
            for (name, lines) in runs.iter().filter(|(name, _)| name.starts_with(prefix)) {
                let verdict = decide(plan, lines, true).unwrap_or_default();
                let refused = refusals.contains_key(*name);
                let decision = if refused { Decision::Invalid } else { verdict.decision };
                let ruled = verdict.comparisons.iter().find(|c| !c.rules.is_empty());
                half_widths
                    .extend(ruled.map(|c| c.estimate.half_width()).filter(|h| h.is_finite()));
                counts[match decision {
                    Decision::Admit => 0,
                    Decision::Decline => 1,
                    Decision::Inconclusive | Decision::Invalid => 2,
                }] += 1;
            }
            let total: u64 = counts.iter().sum();
            if total == 0 {
                return Err(format!("there are no {} runs", prefix.trim_end_matches('-')));
            }
            let of = |i: usize| clopper_pearson(counts[i], total, 0.99);
            Ok(Outcomes { admitted: of(0), declined: of(1), inconclusive: of(2) })
        };
        let real = part("real-", &plans.real)?;
        let slowed = part("slowed-", &plans.slowed)?;
        let half_width = hodges_lehmann(&half_widths).unwrap_or(f64::INFINITY);
        let problems = problems(spec, &resampled, &real, &slowed);
        Ok(Errors { resampled, real, slowed, half_width, problems })
    }

    /// The figures for decision reports.
    ///
    /// # Errors
    /// As [`ErrorRun::errors`].
    pub fn summary(&self) -> Result<ErrorSummary, String> {
        let errors = self.errors()?;
        let rate = |p: Proportion, real: Proportion| Rate {
            share: p.share(),
            lower: p.lower,
            upper: p.upper,
            real: real.count,
        };
        let (r, real, slowed) = (&errors.resampled, &errors.real, &errors.slowed);
        let missed = |o: &Outcomes| {
            clopper_pearson(o.declined.trials - o.declined.count, o.declined.trials, 0.99)
        };
        Ok(ErrorSummary {
            run_id: self.run.run_id.clone(),
            started: self.run.started.clone(),
            series_quads: r.series_quads,
            pseudo_runs: r.pseudo_runs,
            real_runs: real.admitted.trials,
            slowed_runs: slowed.admitted.trials,
            false_admit: rate(r.at_threshold.admitted, real.admitted),
            false_decline: rate(r.at_threshold.declined, real.declined),
            slowdown_ratio: r.slowdown,
            missed: rate(missed(&r.slowed), missed(slowed)),
            holds: errors.problems.is_empty(),
            procedure: Some(self.procedure()),
        })
    }

    fn procedure(&self) -> Procedure {
        let Plan { points, turn, looks, .. } = &self.run.plans.real;
        Procedure {
            model: self.run.scenario.model.clone(),
            workload: points.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "),
            turn: *turn,
            looks: looks.clone(),
        }
    }
}

/// The name of the GPU that a campaign measures; `None` on the CPU.
pub(super) fn device_name(device: DeviceKind) -> Option<String> {
    let found = || devices().into_iter().find(|d| d.device == device && d.count > 0);
    (device != DeviceKind::Cpu).then(found).flatten().map(|d| d.detail)
}

/// What of the rates does not hold.
fn problems(
    spec: &ErrorRateSpec,
    resampled: &ErrorRates,
    real: &Outcomes,
    slowed: &Outcomes,
) -> Vec<String> {
    let mut problems = Vec::new();
    let percent = |share: f64| format!("{:.2}%", 100.0 * share);
    let (at, missed) = (&resampled.at_threshold, 1.0 - resampled.slowed.declined.share());
    let limits = [
        ("false admits", at.admitted.share(), spec.at_most),
        ("false declines", at.declined.share(), spec.at_most),
        ("missed slowdowns", missed, spec.missed_at_most),
        ("missed slowdowns of real runs", 1.0 - slowed.declined.share(), spec.missed_at_most),
    ];
    for (what, share, limit) in limits {
        if share.is_nan() || share > limit {
            problems.push(format!("{what}: {}, at most {}", percent(share), percent(limit)));
        }
    }
    let pairs = [
        ("false admits", real.admitted, at.admitted),
        ("false declines", real.declined, at.declined),
        ("declined slowdowns", slowed.declined, resampled.slowed.declined),
    ];
    for (what, real, resampled) in pairs {
        if !real.contains(resampled.share()) {
            problems.push(format!(
                "{what}: the exact 99% interval of {} of {} real runs, {} to {}, does not contain the {} of the pseudo-runs",
                real.count,
                real.trials,
                percent(real.lower),
                percent(real.upper),
                percent(resampled.share())
            ));
        }
    }
    problems
}

/// The latest campaign that was made on a machine like this one (the same processor, as many of
/// them, and the same GPU where that is recorded), among the reports and results of a project; `None`
/// where there is none.
pub fn established(folders: &[PathBuf], device: DeviceKind) -> Option<ErrorSummary> {
    let machine = MachineRecord::current();
    let mut found: Vec<(String, PathBuf)> = folders
        .iter()
        .flat_map(|folder| std::fs::read_dir(folder).into_iter().flatten().flatten())
        .map(|entry| entry.path().join("record.json"))
        .filter_map(|path| Some((head(&path, device, &machine)?, path)))
        .collect();
    found.sort();
    found.iter().rev().find_map(|(_, path)| {
        let run: ErrorRun = serde_json::from_str(&std::fs::read_to_string(path).ok()?).ok()?;
        run.summary().ok()
    })
}

/// When a campaign that fits was started.
fn head(path: &Path, device: DeviceKind, machine: &MachineRecord) -> Option<String> {
    use std::io::Read as _;
    // Records of other kinds may be large; the kind stands at their start.
    let mut start = vec![0; 512];
    let read = std::fs::File::open(path).ok()?.read(&mut start).ok()?;
    if !String::from_utf8_lossy(&start[..read]).contains("\"error_rates\"") {
        return None;
    }
    #[derive(Deserialize)]
    struct Head {
        run: CampaignRecord,
    }
    let head: Head = serde_json::from_str(&std::fs::read_to_string(path).ok()?).ok()?;
    let same_gpu = head.run.device_name.is_none() || head.run.device_name == device_name(device);
    let fits = head.run.scenario.device == device
        && head.run.machine.is_like(machine)
        && head.run.machine.usable_processors == machine.usable_processors
        && same_gpu;
    fits.then_some(head.run.started)
}

/// The plans of the three parts of a scenario's campaign.
pub(super) fn plans(base: &ScenarioRecord, spec: &ErrorRateSpec) -> Plans {
    let mut real = base.plan.clone();
    real.peers.clear();
    let mut rule = real.rules[0].clone();
    (rule.lower_bound_at_least, rule.upper_bound_at_most) = (Some(1.0), None);
    real.metrics = vec![rule.ratio];
    real.rules = vec![rule];
    real.looks = spec.looks();
    let mut series = real.clone();
    series.looks.quads = vec![spec.series_quads / (spec.series_parts.max(1) as usize)];
    Plans { series, slowed: real.clone(), real }
}
