//! Two decisions: the ratios each of them found, and their absolute values where the identities of
//! the arms allow dividing them.

use super::super::decision::Data;
use super::super::format::quantile;
use super::runs::provenance;
use super::{Fact, Found, RunComparison, Side};
use crate::engine::manifest::{BlockName, ManifestDifference, compare};
use crate::harness::scenario::{Decision, Metric, Point, ScenarioRun, manifest_of};
use serde::Serialize;
use std::collections::BTreeMap;

/// A ratio candidate / baseline as each run found it; bounds of an interval that does not exist
/// are absent.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RatioPair {
    pub arm: String,
    pub point: Point,
    pub metric: Metric,
    /// Estimate, lower and upper bound.
    pub left: [Option<f64>; 3],
    pub right: [Option<f64>; 3],
    /// Whether the two intervals have a value in common.
    pub overlap: bool,
}

/// The median of an arm in each run, in the metric's unit.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ValuePair {
    pub arm: String,
    pub point: Point,
    pub metric: Metric,
    pub left: f64,
    pub right: f64,
    /// right / left, unpaired and without an interval; `None` where the identities do not allow
    /// dividing.
    pub ratio: Option<f64>,
}

/// Whether the values of an arm in the two runs may be divided.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Admissible {
    /// Why not; empty if they may be.
    pub reasons: Vec<String>,
    /// Declared blocks that do differ.
    pub declared: Vec<String>,
    /// Fields that differ: block, path, left, right.
    pub fields: Vec<[String; 4]>,
}

/// How two decisions differ.
#[derive(Clone, Debug, Serialize)]
pub struct DecisionComparison {
    pub scenarios: [String; 2],
    pub left: Decision,
    pub right: Decision,
    pub ratios: Vec<RatioPair>,
    pub values: Vec<ValuePair>,
    /// By arm.
    pub arms: BTreeMap<String, Admissible>,
}

/// Compares two decisions; `declared` names the manifest blocks that are meant to differ.
pub(super) fn compare_decisions(
    left: &ScenarioRun,
    right: &ScenarioRun,
    declared: &[BlockName],
) -> RunComparison {
    let (l, r) = (left.verdict(), right.verdict());
    let (ld, rd) = (Data::new(left, &l), Data::new(right, &r));
    let mut arms = BTreeMap::new();
    for name in ld.arms() {
        if rd.arms().contains(&name) {
            arms.insert(name.to_owned(), admissible(left, right, name, declared));
        }
    }
    let found = DecisionComparison {
        scenarios: [left.run.plan.scenario.clone(), right.run.plan.scenario.clone()],
        left: l.decision,
        right: r.decision,
        ratios: ratios(&ld, &rd),
        values: values(&ld, &rd, &arms),
        arms,
    };
    RunComparison {
        left: side(left, l.decision),
        right: side(right, r.decision),
        facts: facts(left, right),
        found: Found::Decisions(Box::new(found)),
    }
}

fn side(run: &ScenarioRun, decision: Decision) -> Side {
    Side {
        run_id: run.run.run_id.clone(),
        started: run.run.started.clone(),
        outcome: decision.to_string(),
    }
}

fn facts(left: &ScenarioRun, right: &ScenarioRun) -> Vec<Fact> {
    let (l, r) = (&left.run, &right.run);
    let mut facts = provenance((&l.build, &l.machine), (&r.build, &r.machine));
    let set = |run: &ScenarioRun| -> String {
        let set = &run.run.scenario.set;
        set.iter().map(|(k, v)| format!("{k}={v}")).collect::<Vec<_>>().join(" ")
    };
    for (name, a, b) in [
        ("scenario", l.plan.scenario.clone(), r.plan.scenario.clone()),
        ("scenario file", l.scenario.spec_digest.clone(), r.scenario.spec_digest.clone()),
        ("device", l.scenario.device.to_string(), r.scenario.device.to_string()),
        ("model", l.scenario.model.clone(), r.scenario.model.clone()),
        ("--set", set(left), set(right)),
    ] {
        if a != b {
            facts.push(Fact { name: name.to_owned(), left: a, right: b });
        }
    }
    facts
}

/// Whether an arm's values may be divided: the same model and weights, and no block differs that
/// was not declared.
fn admissible(
    left: &ScenarioRun,
    right: &ScenarioRun,
    arm: &str,
    declared: &[BlockName],
) -> Admissible {
    let manifest = |run: &ScenarioRun| run.run.arms.get(arm).and_then(|a| manifest_of(&a.manifest));
    let (Some(l), Some(r)) = (manifest(left), manifest(right)) else {
        let reasons = vec!["a run recorded no manifest of this arm".to_owned()];
        return Admissible { reasons, declared: Vec::new(), fields: Vec::new() };
    };
    let difference: ManifestDifference = compare(&l, &r);
    let (mut reasons, mut allowed, mut fields) = (Vec::new(), Vec::new(), Vec::new());
    for block in difference.blocks.iter().filter(|b| !b.equal()) {
        let shown = |v: &Option<crate::units::Canonical>| {
            v.as_ref().map_or("absent".to_owned(), |v| v.encode().trim_matches('"').to_owned())
        };
        for f in &block.fields {
            fields.push([block.name.to_string(), f.path.clone(), shown(&f.left), shown(&f.right)]);
        }
        let meaning = matches!(block.name, BlockName::Semantic | BlockName::WeightsSource);
        if block.name == BlockName::Storage || declared.contains(&block.name) && !meaning {
            allowed.push(block.name.to_string());
        } else {
            let paths: Vec<&str> = block.fields.iter().map(|f| f.path.as_str()).take(3).collect();
            let more = block.fields.len().saturating_sub(3);
            let more = if more > 0 { format!(" and {more} more") } else { String::new() };
            reasons.push(format!("{} differs in {}{more}", block.name, paths.join(", ")));
        }
    }
    Admissible { reasons, declared: allowed, fields }
}

fn ratios(left: &Data<'_>, right: &Data<'_>) -> Vec<RatioPair> {
    let bounds = |e: &crate::harness::stats::Estimate| {
        [e.log_ratio, e.lower, e.upper].map(|v| v.is_finite().then(|| v.exp()))
    };
    let mut pairs = Vec::new();
    for l in &left.verdict.comparisons {
        let same = |r: &&crate::harness::scenario::Comparison| {
            r.arm == l.arm && r.metric == l.metric && r.point == l.point
        };
        let Some(r) = right.verdict.comparisons.iter().find(same) else { continue };
        let overlap = l.estimate.lower <= r.estimate.upper && r.estimate.lower <= l.estimate.upper;
        pairs.push(RatioPair {
            arm: l.arm.clone(),
            point: l.point,
            metric: l.metric,
            left: bounds(&l.estimate),
            right: bounds(&r.estimate),
            overlap,
        });
    }
    pairs
}

fn values(
    left: &Data<'_>,
    right: &Data<'_>,
    arms: &BTreeMap<String, Admissible>,
) -> Vec<ValuePair> {
    let mut pairs = Vec::new();
    let (lp, rp) = (&left.record.run.plan, &right.record.run.plan);
    for (at, point) in lp.points.iter().enumerate() {
        let Some(other) = rp.points.iter().position(|p| p == point) else { continue };
        for &metric in lp.metrics.iter().filter(|m| rp.metrics.contains(m)) {
            if metric.is_per_launch() && at > 0 {
                continue;
            }
            for (arm, admissible) in arms {
                let median = |data: &Data<'_>, point: usize| {
                    let arm = data.arms().iter().position(|a| a == arm)?;
                    let sorted = data.sorted(metric, point, arm);
                    (!sorted.is_empty()).then(|| quantile(&sorted, 0.5))
                };
                let (Some(l), Some(r)) = (median(left, at), median(right, other)) else { continue };
                pairs.push(ValuePair {
                    arm: arm.clone(),
                    point: *point,
                    metric,
                    left: l,
                    right: r,
                    ratio: admissible.reasons.is_empty().then(|| r / l),
                });
            }
        }
    }
    pairs
}
