//! The gate: one trial per policy, for as long as the file says.

use super::judge::{LEAST_ANSWERS, Limits, Seen};
use super::memory::resident_bytes;
use super::requests::{CONTEXT_TOKENS, Traffic, answer};
use crate::backend::{DeviceKind, Policy};
use crate::engine::{Engine, EngineOptions};
use crate::harness::kind::{
    Case, Cell, DeviceUse, Fault, GateKind, KindSpec, Outcome, Part, PlanScope, PolicyUse,
    RunContext,
};
use crate::weights::{LoadOptions, Model};
use serde::Deserialize;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Requests before memory is looked at for the first time: allocators keep what they once had.
const WARM_UP_REQUESTS: usize = 400;
/// Requests between two answers to the same request.
const BETWEEN_ANSWERS: usize = 4;

/// Random requests with cancellations, forks and refusals: memory comes back, the same request has
/// the same bits from the first to the last, and its latency has no trend.
#[derive(Debug, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::harness::kinds) struct Soak {
    /// Folder of the checkpoint.
    model: PathBuf,
    /// How long with `--long`, in milliseconds.
    duration_ms: u64,
    /// How long without.
    short_duration_ms: u64,
    /// The seed of the requests.
    seed: u64,
    /// Most that resident memory may grow from the end of warming up to the end.
    resident_growth_at_most_bytes: u64,
    /// Most that the fastest answer of the last third may take, in those of the first third.
    latency_ratio_at_most: f64,
}

impl KindSpec for Soak {
    const NAME: &'static str = "soak";
    const DEVICE: DeviceUse = DeviceUse::Any;
    const POLICY: PolicyUse = PolicyUse::Listed;
}

impl GateKind for Soak {
    fn cases(&self, _scope: &PlanScope) -> Result<Vec<Case>, Fault> {
        if self.short_duration_ms == 0 || self.short_duration_ms > self.duration_ms {
            let message = "not between 1 and `duration_ms`";
            return Err(Fault::at("short_duration_ms", message));
        }
        if !self.latency_ratio_at_most.is_finite() || self.latency_ratio_at_most < 1.0 {
            return Err(Fault::at("latency_ratio_at_most", "not a finite ratio of at least 1"));
        }
        Ok(vec![Case::default()])
    }

    /// A policy whose bits depend on how rows are cut into steps makes no such claim.
    fn not_applicable(&self, device: DeviceKind, policy: Policy) -> Option<String> {
        policy.no_invariance(device)
    }

    fn run(&self, cell: &Cell, context: &RunContext) -> Outcome {
        self.decide(cell, context).unwrap_or_else(Outcome::error)
    }

    fn part(&self, scope: &PlanScope) -> Option<Part> {
        let seconds = |ms: u64| ms.div_ceil(1000);
        let (run, of) = (seconds(self.short_duration_ms), seconds(self.duration_ms));
        (!scope.long && run < of).then_some(Part { run, of, what: "seconds".into() })
    }
}

impl Soak {
    fn decide(&self, cell: &Cell, context: &RunContext) -> Result<Outcome, String> {
        let engine = self.engine(cell, context)?;
        let time = if context.long { self.duration_ms } else { self.short_duration_ms };
        let mut traffic = Traffic::new(&engine, self.seed);
        for _ in 0..WARM_UP_REQUESTS {
            if let Err(why) = traffic.act() {
                return Ok(broken(&traffic, why));
            }
        }
        let vocab = engine.descriptor().vocab as u32;
        let request: Vec<u32> = (0..24).map(|i| (i * 37 + 5) % vocab).collect();
        let before = resident_bytes();
        let mut seen = Seen::default();
        let end = Instant::now() + Duration::from_millis(time);
        // A slow machine takes longer rather than giving fewer answers than a trend needs.
        while Instant::now() < end || seen.answers.len() < LEAST_ANSWERS {
            let start = Instant::now();
            // What the gate itself keeps must not grow like a leak: equal answers share one digest.
            let found = answer(&engine, &request)?;
            let first = seen.answers.first().filter(|first| ***first == *found).cloned();
            seen.answers.push(first.unwrap_or_else(|| found.into()));
            seen.latencies_ms.push(start.elapsed().as_secs_f64() * 1e3);
            for _ in 0..BETWEEN_ANSWERS {
                if let Err(why) = traffic.act() {
                    return Ok(broken(&traffic, why));
                }
            }
        }
        seen.counts = traffic.finish();
        seen.left_bytes = engine.sequence_bytes();
        seen.resident_bytes = before.zip(resident_bytes());
        let limits = Limits {
            resident_growth_bytes: self.resident_growth_at_most_bytes,
            latency_ratio: self.latency_ratio_at_most,
        };
        let problems = seen.problems(limits);
        let outcome = if problems.is_empty() {
            Outcome::pass(format!(
                "{} requests: memory came back, {} answers to one request bitwise equal and \
                 equally fast",
                seen.counts.requests,
                seen.answers.len()
            ))
        } else {
            Outcome::fail(problems.join("; "))
        };
        Ok(seen.evidence(outcome).with("duration_ms", time).with("seed", self.seed))
    }

    /// An engine of this trial's own: what others keep would be counted with it.
    fn engine(&self, cell: &Cell, context: &RunContext) -> Result<Engine, String> {
        let model = Model::open(context.path(&self.model)).map_err(|e| e.to_string())?;
        let weights = model.load(&LoadOptions::default()).map_err(|e| e.to_string())?;
        let options = EngineOptions {
            device: cell.device.first(),
            threads: Some(context.threads),
            context_tokens: Some(CONTEXT_TOKENS),
            ..EngineOptions::with_policy(cell.policy.ok_or("the cell has no policy")?)
        };
        Engine::new(Arc::new(model.descriptor), &weights, &options).map_err(|e| e.to_string())
    }
}

fn broken(traffic: &Traffic<'_>, why: String) -> Outcome {
    Outcome::fail(format!("request {}: {why}", traffic.counts.requests))
        .with("requests", traffic.counts.requests)
}
