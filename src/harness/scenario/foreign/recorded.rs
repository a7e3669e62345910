//! An arm of an earlier record, shown beside without a ratio.

use crate::harness::scenario::spec::Recorded;
use crate::harness::scenario::{Line, Metric, Point, ScenarioRun, Slot, is_dropped};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// What an earlier run measured of one arm.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BesideRecord {
    pub run_id: String,
    /// The arm's name there.
    pub arm: String,
    /// RFC 3339, UTC.
    pub started: String,
    pub model: String,
    pub cpu: Option<String>,
    /// By metric and point: samples, median, 5% and 95% quantile.
    pub values: Vec<BesideValue>,
}

/// One metric at one workload.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BesideValue {
    pub metric: Metric,
    pub point: Point,
    pub samples: usize,
    pub median: f64,
    pub low: f64,
    pub high: f64,
}

/// The record cannot be shown.
#[derive(Debug, thiserror::Error)]
#[error("arm `{arm}`: {}: {message}", path.display())]
pub struct RecordedError {
    pub arm: String,
    pub path: PathBuf,
    pub message: String,
}

/// Reads what `recorded` names; paths are relative to the scenario file.
///
/// # Errors
/// The record cannot be read or has no such arm.
pub fn read_recorded(
    arm: &str,
    recorded: &Recorded,
    file: &Path,
    metrics: &[Metric],
) -> Result<BesideRecord, RecordedError> {
    let path = file.parent().unwrap_or(Path::new("")).join(&recorded.report).join("record.json");
    let failed = |message: String| RecordedError { arm: arm.into(), path: path.clone(), message };
    let text = std::fs::read_to_string(&path).map_err(|e| failed(e.to_string()))?;
    let run: ScenarioRun = serde_json::from_str(&text)
        .map_err(|e| failed(format!("this is no record of a scenario: {e}")))?;
    let known: Vec<&str> = run.run.plan.arms().collect();
    if !known.contains(&recorded.arm.as_str()) {
        let known = known.join(", ");
        return Err(failed(format!("it has no arm `{}`; it has {known}", recorded.arm)));
    }
    Ok(beside(&run, &recorded.arm, metrics))
}

fn beside(run: &ScenarioRun, arm: &str, metrics: &[Metric]) -> BesideRecord {
    let plan = &run.run.plan;
    let mut all: BTreeMap<(Metric, usize), Vec<f64>> = BTreeMap::new();
    for line in &run.lines {
        let Line::Quad(quad) = line else { continue };
        let Some(point) = plan.points.get(quad.point).filter(|_| !is_dropped(quad)) else {
            continue;
        };
        for (slot, sample) in Slot::QUAD.iter().zip(&quad.samples) {
            if plan.arm(*slot, &quad.arm) != arm {
                continue;
            }
            for metric in metrics {
                if let Some(value) = metric.of(sample, *point) {
                    all.entry((*metric, quad.point)).or_default().push(value);
                }
            }
        }
    }
    let values = all
        .into_iter()
        .map(|((metric, point), mut values)| {
            values.sort_unstable_by(f64::total_cmp);
            let at = |share: f64| values[((values.len() - 1) as f64 * share).round() as usize];
            BesideValue {
                metric,
                point: plan.points[point],
                samples: values.len(),
                median: at(0.5),
                low: at(0.05),
                high: at(0.95),
            }
        })
        .collect();
    BesideRecord {
        run_id: run.run.run_id.clone(),
        arm: arm.to_owned(),
        started: run.run.started.clone(),
        model: run.run.scenario.model.clone(),
        cpu: run.run.machine.cpu.clone(),
        values,
    }
}
