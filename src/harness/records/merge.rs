//! Joining runs: the parts of a partition, or the same gates on several machines.

use super::{
    BuildRecord, DeviceRecord, GateRecord, GateRun, MergedRun, RecordError, RunRecord, RunWriter,
    TrialRecord, run_id, unestablished,
};
use crate::harness::kind::Verdict;
use crate::harness::plan::Partition;
use crate::units::total;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Why runs cannot be joined.
#[derive(Debug, thiserror::Error)]
pub enum MergeError {
    #[error(transparent)]
    Record(#[from] RecordError),
    #[error("{} and {}: {reason}", first.display(), second.display())]
    Apart { first: PathBuf, second: PathBuf, reason: String },
}

/// A joined run.
#[derive(Debug)]
pub struct Merged {
    /// The folder of its records.
    pub folder: PathBuf,
    /// Trials that more than one run executed.
    pub shared: u64,
    /// Names of shared trials whose results differ; the graver one counts.
    pub disputed: Vec<String>,
}

/// Writes a run that holds the trials of all `runs` to a folder of its own below `out`.
///
/// A trial that several runs have keeps its gravest verdict, and any result outranks a skip. What
/// a run planned and did not record stays missing, as do parts of a partition that are not given.
///
/// # Errors
/// The runs come from different builds, read different gate files, or are parts of different
/// partitions; or the records cannot be written.
pub fn merge(runs: &[GateRun], out: &Path, command: Vec<String>) -> Result<Merged, MergeError> {
    let first = &runs[0];
    for other in &runs[1..] {
        comparable(first, other)?;
    }
    for (at, run) in runs.iter().enumerate() {
        if let Some(twin) = runs[..at].iter().find(|r| r.run.run_id == run.run.run_id) {
            return Err(apart(twin, run, "the same run is given twice".to_owned()));
        }
    }
    let gates = gates(runs)?;
    let joined = Joined::of(runs);
    let record = record(runs, gates, &joined.trials, command)?;
    let (elapsed_ms, lacking) = (record.elapsed_ms, record.pending.clone());
    let mut writer = RunWriter::create(out, RunRecord { elapsed_ms: 0, ..record })?;
    for trial in &joined.trials {
        writer.append(trial)?;
    }
    let folder = writer.finish(elapsed_ms, lacking)?;
    Ok(Merged { folder, shared: joined.shared, disputed: joined.disputed })
}

fn apart(first: &GateRun, second: &GateRun, reason: String) -> MergeError {
    MergeError::Apart { first: first.folder.clone(), second: second.folder.clone(), reason }
}

/// Whether results of both may stand in one run.
fn comparable(first: &GateRun, other: &GateRun) -> Result<(), MergeError> {
    let (a, b) = (&first.run, &other.run);
    if a.build.digest != b.build.digest {
        let named = |build: &BuildRecord| {
            let digest = build.digest.get(..12).unwrap_or(&build.digest);
            let revision = build.git_revision.get(..12).unwrap_or(&build.git_revision);
            let dirty = if build.git_dirty == Some(true) { ", modified" } else { "" };
            format!("{digest} (revision {revision}{dirty}, {})", build.profile)
        };
        return Err(apart(
            first,
            other,
            format!(
                "made by different builds: {} and {}; run every part with the same binary",
                named(&a.build),
                named(&b.build)
            ),
        ));
    }
    if a.options.long != b.options.long {
        let with = |long: bool| if long { "with" } else { "without" };
        let reason =
            format!("one ran {} --long, one {}", with(a.options.long), with(b.options.long));
        return Err(apart(first, other, reason));
    }
    if a.options.set != b.options.set {
        return Err(apart(first, other, "made with different --set values".to_owned()));
    }
    Ok(())
}

/// The gates of all runs, by name.
fn gates(runs: &[GateRun]) -> Result<Vec<GateRecord>, MergeError> {
    let mut gates: BTreeMap<&str, (&GateRun, GateRecord)> = BTreeMap::new();
    for run in runs {
        for gate in &run.run.gates {
            match gates.get_mut(gate.gate.as_str()) {
                None => {
                    gates.insert(&gate.gate, (run, gate.clone()));
                }
                Some((from, known)) if known.spec_digest != gate.spec_digest => {
                    let reason = format!(
                        "the file of gate `{}` differs ({} and {})",
                        gate.gate, known.path, gate.path
                    );
                    return Err(apart(from, run, reason));
                }
                // A machine with more devices plans more trials.
                Some((_, known)) => known.trials = known.trials.max(gate.trials),
            }
        }
    }
    Ok(gates.into_values().map(|(_, gate)| gate).collect())
}

/// Every trial once.
struct Joined {
    trials: Vec<TrialRecord>,
    shared: u64,
    disputed: Vec<String>,
}

impl Joined {
    fn of(runs: &[GateRun]) -> Joined {
        let mut trials: Vec<TrialRecord> = Vec::new();
        let mut places: BTreeMap<&str, usize> = BTreeMap::new();
        let (mut shared, mut disputed) = (0, BTreeSet::new());
        for run in runs {
            for trial in &run.trials {
                let mut record = trial.clone();
                record.from_run.get_or_insert_with(|| run.run.run_id.clone());
                let Some(&at) = places.get(trial.name.as_str()) else {
                    places.insert(&trial.name, trials.len());
                    trials.push(record);
                    continue;
                };
                let known = &mut trials[at];
                let skips = [known.verdict, record.verdict].map(|v| v == Verdict::Skip);
                if skips == [false, false] {
                    shared += 1;
                    if known.verdict != record.verdict {
                        disputed.insert(trial.name.clone());
                    }
                }
                if gravity(record.verdict) < gravity(known.verdict) {
                    *known = record;
                }
            }
        }
        // Gate by gate, each in the order its trials were recorded in.
        trials.sort_by(|a, b| a.gate.cmp(&b.gate));
        Joined { trials, shared, disputed: disputed.into_iter().collect() }
    }
}

/// Lower is graver; a skip says the least.
fn gravity(verdict: Verdict) -> u8 {
    match verdict {
        Verdict::Error => 0,
        Verdict::Fail => 1,
        Verdict::Measured => 2,
        Verdict::Pass => 3,
        Verdict::Skip => 4,
    }
}

fn record(
    runs: &[GateRun],
    gates: Vec<GateRecord>,
    trials: &[TrialRecord],
    command: Vec<String>,
) -> Result<RunRecord, MergeError> {
    let first = &runs[0].run;
    let merged: Vec<MergedRun> = runs.iter().flat_map(parts).collect();
    let missing_parts = missing_parts(runs)?;
    let devices = devices(&merged);
    let not_applicable: BTreeSet<_> =
        runs.iter().flat_map(|r| &r.run.not_applicable).cloned().collect();
    let not_applicable: Vec<_> = not_applicable.into_iter().collect();
    let listed = |kind| trials.iter().filter(|t| t.device == kind).count();
    let mut open = unestablished(&devices, listed, &not_applicable);
    open.extend(missing_parts.iter().map(|p| format!("the trials of part {p}: no such run given")));
    let mut options = first.options.clone();
    (options.partition, options.shuffle) = (None, None);
    options.selection = Vec::new();
    for word in runs.iter().flat_map(|r| &r.run.options.selection) {
        if !options.selection.contains(word) {
            options.selection.push(word.clone());
        }
    }
    let (lost, pending) = lost(runs, trials);
    let started = merged.iter().map(|m| m.started.clone()).min().unwrap_or_default();
    Ok(RunRecord {
        run_id: run_id(&crate::units::utc_now()),
        command,
        started,
        finished: None,
        elapsed_ms: total(merged.iter().map(|m| m.elapsed_ms)),
        devices,
        options,
        gates,
        not_applicable,
        planned_trials: lost.saturating_add(trials.len() as u64),
        pending,
        unestablished: open,
        last_line: None,
        merged,
        missing_parts,
        ..first.clone()
    })
}

/// The trials that were planned and that no run recorded: their number, and those of them that are
/// known by name. What one run lost and another executed is not lost.
fn lost(runs: &[GateRun], trials: &[TrialRecord]) -> (u64, Vec<String>) {
    let recorded: BTreeSet<&str> = trials.iter().map(|t| t.name.as_str()).collect();
    let (mut names, mut nameless) = (BTreeSet::new(), 0_u64);
    for run in runs {
        let (count, known) = run.missing();
        nameless = nameless.saturating_add(count.saturating_sub(known.len() as u64));
        names.extend(known.into_iter().filter(|name| !recorded.contains(name.as_str())));
    }
    (nameless.saturating_add(names.len() as u64), names.into_iter().collect())
}

/// What a run adds to the list of merged ones: itself, or what it was merged from.
fn parts(run: &GateRun) -> Vec<MergedRun> {
    let record = &run.run;
    if !record.merged.is_empty() {
        return record.merged.clone();
    }
    vec![MergedRun {
        run_id: record.run_id.clone(),
        started: record.started.clone(),
        finished: record.finished.clone(),
        elapsed_ms: record.elapsed_ms,
        machine: record.machine.clone(),
        devices: record.devices.clone(),
        partition: record.options.partition.clone(),
        planned_trials: record.planned_trials,
        recorded_trials: run.trials.len() as u64,
        last_line: run.last_line.clone(),
    }]
}

/// Of every kind of device the most that one of the machines has.
fn devices(merged: &[MergedRun]) -> Vec<DeviceRecord> {
    let mut devices: Vec<DeviceRecord> = Vec::new();
    for device in merged.iter().flat_map(|m| &m.devices) {
        match devices.iter_mut().find(|d| d.device == device.device) {
            None => devices.push(device.clone()),
            Some(known) if known.count < device.count => *known = device.clone(),
            Some(_) => {}
        }
    }
    devices
}

/// Parts of the partition that no run covers.
fn missing_parts(runs: &[GateRun]) -> Result<Vec<String>, MergeError> {
    let mut given: Vec<(&GateRun, Partition)> = Vec::new();
    let mut whole: Option<u64> = None;
    for run in runs {
        for part in parts(run).iter().filter_map(|p| p.partition.as_deref()?.parse().ok()) {
            given.push((run, part));
        }
    }
    for (run, part) in &given {
        if whole.is_some_and(|count| count != part.count()) {
            let reason = format!("parts of different partitions: {} and {part}", given[0].1);
            return Err(apart(given[0].0, run, reason));
        }
        whole = Some(part.count());
        let selection = |r: &GateRun| r.run.options.selection.clone();
        if selection(run) != selection(given[0].0) && run.run.merged.is_empty() {
            let reason = "parts of different selections of gates".to_owned();
            return Err(apart(given[0].0, run, reason));
        }
    }
    let count = whole.unwrap_or(0);
    let absent = (1..=count).filter(|i| !given.iter().any(|(_, part)| part.index() == *i));
    Ok(absent.map(|i| format!("hash:{i}/{count}")).collect())
}
