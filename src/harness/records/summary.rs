//! What a report and a summary line show of a gate run: a pure function of its records.

use super::{GateRecord, GateRun, NotApplicable, RunRecord, TrialRecord};
use crate::harness::kind::Verdict;
use crate::harness::spec::Track;
use crate::units::{Exit, total};
use serde::Serialize;
use std::collections::BTreeMap;

/// How many trials came to what.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    pub pass: u64,
    pub fail: u64,
    pub error: u64,
    pub skip: u64,
    pub measured: u64,
}

impl Counts {
    /// Counts one more.
    pub fn add(&mut self, verdict: Verdict) {
        *match verdict {
            Verdict::Pass => &mut self.pass,
            Verdict::Fail => &mut self.fail,
            Verdict::Error => &mut self.error,
            Verdict::Skip => &mut self.skip,
            Verdict::Measured => &mut self.measured,
        } += 1;
    }

    /// The number of trials with this verdict.
    pub fn of(&self, verdict: Verdict) -> u64 {
        match verdict {
            Verdict::Pass => self.pass,
            Verdict::Fail => self.fail,
            Verdict::Error => self.error,
            Verdict::Skip => self.skip,
            Verdict::Measured => self.measured,
        }
    }

    /// All of them.
    pub fn total(&self) -> u64 {
        Verdict::ALL.into_iter().map(|v| self.of(v)).sum()
    }

    /// The gravest verdict present; `None` of nothing. Skips count only where nothing ran.
    pub fn worst(&self) -> Option<Verdict> {
        let order =
            [Verdict::Error, Verdict::Fail, Verdict::Measured, Verdict::Pass, Verdict::Skip];
        order.into_iter().find(|v| self.of(*v) > 0)
    }
}

/// One gate of the run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct GateSummary {
    pub gate: GateRecord,
    pub counts: Counts,
    /// `None`: planned and not recorded, so the gate is not established.
    pub verdict: Option<Verdict>,
    pub duration_ms: u64,
    /// Verdicts over its matrix, where it has axes.
    pub heat_map: Option<HeatMap>,
}

/// Verdicts of a gate's matrix: a row per device, policy, case and further axes, a column per
/// value of one axis.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct HeatMap {
    /// The axis along the columns.
    pub column_axis: String,
    pub columns: Vec<String>,
    pub rows: Vec<HeatRow>,
}

/// One row of a heat map.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct HeatRow {
    /// `cpu/reference/decode heads=4x2,head_dim=64`.
    pub label: String,
    /// Per column: the verdict, or `None` where there is no such cell.
    pub cells: Vec<Option<Verdict>>,
}

/// Trials skipped for the same reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SkipGroup {
    pub reason: String,
    /// Trial names.
    pub trials: Vec<String>,
}

/// Everything a gate-run page shows.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RunSummary {
    pub run: RunRecord,
    pub counts: Counts,
    pub by_track: BTreeMap<Track, Counts>,
    pub gates: Vec<GateSummary>,
    /// Failed and erroneous trials with their evidence, failures first.
    pub failures: Vec<TrialRecord>,
    pub skips: Vec<SkipGroup>,
    pub not_applicable: Vec<NotApplicable>,
    /// Trials that were planned and have no record.
    pub missing_trials: u64,
    /// Their names; fewer where the run was made before names were recorded.
    pub missing: Vec<String>,
}

impl RunSummary {
    /// The exit code of the run.
    pub fn exit(&self) -> Exit {
        if self.counts.fail + self.counts.error > 0 {
            Exit::Fail
        } else if self.missing_trials > 0 || !self.run.missing_parts.is_empty() {
            // Planned and not run is a failure, never a silent pass.
            Exit::Fail
        } else {
            Exit::Success
        }
    }

    /// The outcome in words: `failed`, `passed`, or `nothing ran` where every trial was skipped or
    /// none was planned, which says nothing about any claim.
    pub fn word(&self) -> &'static str {
        match self.exit() {
            Exit::Success if self.counts.total() == self.counts.skip => "nothing ran",
            Exit::Success => "passed",
            _ => "failed",
        }
    }
}

/// Summarises a run.
pub fn summarise(run: &GateRun) -> RunSummary {
    let mut by_gate: BTreeMap<&str, Vec<&TrialRecord>> = BTreeMap::new();
    let mut counts = Counts::default();
    for trial in &run.trials {
        by_gate.entry(&trial.gate).or_default().push(trial);
        counts.add(trial.verdict);
    }
    let mut by_track: BTreeMap<Track, Counts> = BTreeMap::new();
    let gates = run.run.gates.iter().map(|gate| {
        let trials = by_gate.get(gate.gate.as_str()).map(Vec::as_slice).unwrap_or_default();
        let mut counts = Counts::default();
        for trial in trials {
            counts.add(trial.verdict);
            by_track.entry(gate.track).or_default().add(trial.verdict);
        }
        GateSummary {
            gate: gate.clone(),
            counts,
            verdict: counts.worst(),
            duration_ms: total(trials.iter().map(|t| t.duration_ms)),
            heat_map: heat_map(trials),
        }
    });
    let gates = gates.collect();
    let with = |verdict| run.trials.iter().filter(move |t| t.verdict == verdict);
    let mut skips: Vec<SkipGroup> = Vec::new();
    for trial in with(Verdict::Skip) {
        match skips.iter_mut().find(|s| s.reason == trial.message) {
            Some(group) => group.trials.push(trial.name.clone()),
            None => skips.push(SkipGroup {
                reason: trial.message.clone(),
                trials: vec![trial.name.clone()],
            }),
        }
    }
    let (missing_trials, missing) = run.missing();
    RunSummary {
        run: RunRecord { pending: Vec::new(), ..run.run.clone() },
        counts,
        by_track,
        gates,
        failures: with(Verdict::Fail).chain(with(Verdict::Error)).cloned().collect(),
        skips,
        not_applicable: run.run.not_applicable.clone(),
        missing_trials,
        missing,
    }
}

/// The matrix with the axis of most values along the columns.
fn heat_map(trials: &[&TrialRecord]) -> Option<HeatMap> {
    let mut axes: Vec<(&str, Vec<&str>)> = Vec::new();
    for trial in trials {
        for (axis, value) in trial.axes() {
            match axes.iter_mut().find(|(name, _)| *name == axis) {
                Some((_, values)) if values.contains(&value) => {}
                Some((_, values)) => values.push(value),
                None => axes.push((axis, vec![value])),
            }
        }
    }
    // On equal counts the last axis: it varies fastest and is usually the size.
    let (column_axis, columns) = axes.into_iter().max_by_key(|(_, values)| values.len())?;
    let mut rows: Vec<HeatRow> = Vec::new();
    for trial in trials {
        let at = trial.axes().find(|(axis, _)| *axis == column_axis).map(|(_, v)| v);
        let Some(column) = at.and_then(|v| columns.iter().position(|c| *c == v)) else { continue };
        let rest: Vec<String> = trial
            .axes()
            .filter(|(axis, _)| *axis != column_axis)
            .map(|(axis, value)| format!("{axis}={value}"))
            .collect();
        let policy = trial.policy.map(|p| format!("/{p}")).unwrap_or_default();
        let case = trial.case.as_ref().map(|c| format!("/{c}")).unwrap_or_default();
        let label = format!("{}{policy}{case} {}", trial.device, rest.join(","));
        let label = label.trim_end().to_owned();
        let row = match rows.iter().position(|r| r.label == label) {
            Some(at) => at,
            None => {
                rows.push(HeatRow { label, cells: vec![None; columns.len()] });
                rows.len() - 1
            }
        };
        rows[row].cells[column] = Some(trial.verdict);
    }
    let columns = columns.into_iter().map(str::to_owned).collect();
    Some(HeatMap { column_axis: column_axis.to_owned(), columns, rows })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::{DeviceKind, Policy};
    use crate::harness::kind::{Cell, Outcome};

    fn trial(case: &str, heads: &str, tokens: &str, outcome: Outcome) -> TrialRecord {
        let axes = vec![("heads".into(), heads.into()), ("tokens".into(), tokens.into())];
        let cell = Cell {
            device: DeviceKind::Cpu,
            policy: Some(Policy::F32),
            case: Some(case.into()),
            axes,
        };
        TrialRecord::new(&format!("g/{case}/{heads}/{tokens}"), "g", &cell, outcome, "digest")
    }

    #[test]
    fn the_longest_axis_makes_the_columns_and_absent_cells_stay_empty() {
        let trials = [
            trial("decode", "4x2", "1", Outcome::pass("")),
            trial("decode", "4x2", "63", Outcome::fail("")),
            trial("decode", "4x4", "64", Outcome::new(Verdict::Measured, "")),
        ];
        let map = heat_map(&trials.iter().collect::<Vec<_>>()).unwrap();
        assert_eq!((map.column_axis.as_str(), map.columns.join(" ")), ("tokens", "1 63 64".into()));
        assert_eq!(map.rows[0].label, "cpu/f32/decode heads=4x2");
        assert_eq!(map.rows[0].cells, [Some(Verdict::Pass), Some(Verdict::Fail), None]);
        assert_eq!(map.rows[1].cells, [None, None, Some(Verdict::Measured)]);
        assert!(heat_map(&[]).is_none());
    }

    #[test]
    fn the_worst_verdict_is_the_gates_and_skips_are_no_pass() {
        let worst = |verdicts: &[Verdict]| {
            let mut counts = Counts::default();
            verdicts.iter().for_each(|v| counts.add(*v));
            counts.worst()
        };
        assert_eq!(worst(&[Verdict::Pass, Verdict::Skip]), Some(Verdict::Pass));
        assert_eq!(worst(&[Verdict::Skip]), Some(Verdict::Skip));
        assert_eq!(worst(&[Verdict::Pass, Verdict::Fail, Verdict::Error]), Some(Verdict::Error));
        assert_eq!(worst(&[Verdict::Measured, Verdict::Pass]), Some(Verdict::Measured));
        assert_eq!(worst(&[]), None);
    }
}
