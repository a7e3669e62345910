//! The gate: seeds in blocks, one trial each.

use super::execute::{Counts, execute};
use super::schedule::generate;
use super::serial::Serial;
use super::shrink::shrink;
use crate::backend::{DeviceKind, Policy};
use crate::harness::Matrix;
use crate::harness::kind::{
    Case, Cell, DeviceUse, Fault, GateKind, KindSpec, Outcome, Part, PlanScope, PolicyUse,
    RunContext,
};
use crate::harness::kinds::loaded::load_packed;
use crate::harness::kinds::packing::Packing;
use serde::Deserialize;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

/// Schedules of one trial.
const BLOCK: u64 = 8;

/// Random schedules (prefill and decode mixed, chunks of 1 … 200, joins, leaves, truncations, forks,
/// checkpoints, 1 … 64 sequences) against serial token-by-token execution, every row and the final
/// states by bits.
#[derive(Debug, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::harness::kinds) struct ScheduleInvariance {
    /// Folder of the checkpoint.
    model: PathBuf,
    /// Schedules with `--long`: the seeds 0 … n − 1.
    schedules: u64,
    /// Schedules without.
    short_schedules: u64,
    /// Roles that are packed into four bits, for rows of prefill and of decode alike.
    #[serde(default)]
    int4: Option<Packing>,
}

impl KindSpec for ScheduleInvariance {
    const NAME: &'static str = "schedule_invariance";
    const DEVICE: DeviceUse = DeviceUse::Any;
    const POLICY: PolicyUse = PolicyUse::Listed;
}

impl GateKind for ScheduleInvariance {
    fn cases(&self, scope: &PlanScope) -> Result<Vec<Case>, Fault> {
        for (key, n) in [("schedules", self.schedules), ("short_schedules", self.short_schedules)] {
            if n == 0 || n % BLOCK != 0 {
                return Err(Fault::at(key, format!("{n} is not a positive multiple of {BLOCK}")));
            }
        }
        if self.short_schedules > self.schedules {
            return Err(Fault::at("short_schedules", "more than `schedules`"));
        }
        if let Some(int4) = &self.int4 {
            int4.of_every_row().map_err(|message| Fault::at("int4", message))?;
        }
        let count = if scope.long { self.schedules } else { self.short_schedules };
        let blocks: Vec<String> = (0..count / BLOCK)
            .map(|b| format!("{}-{}", b * BLOCK, b * BLOCK + BLOCK - 1))
            .collect();
        Ok(Matrix::new().axis("seeds", &blocks).unnamed())
    }

    /// A policy whose bits depend on how rows are cut into steps makes no such claim.
    fn not_applicable(&self, device: DeviceKind, policy: Policy) -> Option<String> {
        policy.no_invariance(device)
    }

    fn run(&self, cell: &Cell, context: &RunContext) -> Outcome {
        self.decide(cell, context).unwrap_or_else(Outcome::error)
    }

    fn group(&self, cell: &Cell) -> Option<String> {
        Some(format!("{} {:?}", self.model.display(), cell.policy))
    }

    fn part(&self, scope: &PlanScope) -> Option<Part> {
        let part = Part { run: self.short_schedules, of: self.schedules, what: "schedules".into() };
        (!scope.long && part.run < part.of).then_some(part)
    }
}

impl ScheduleInvariance {
    fn decide(&self, cell: &Cell, context: &RunContext) -> Result<Outcome, String> {
        let model = context.path(&self.model);
        let loaded = load_packed(&model, self.int4.as_ref(), cell, context)?;
        let key = format!("serial {} {:?} {:?}", self.model.display(), self.int4, cell.policy);
        let serial =
            context.cache.get_or_make(&key, || Ok::<_, String>(Mutex::new(Serial::default())))?;
        let mut serial = serial.lock().unwrap_or_else(PoisonError::into_inner);
        let seeds = cell.axis("seeds").ok_or("the cell has no seeds")?;
        let (first, last) = seeds.split_once('-').ok_or("seeds are a range")?;
        let parse = |s: &str| s.parse::<u64>().map_err(|e| format!("seeds `{seeds}`: {e}"));
        let mut total = Counts::default();
        for seed in parse(first)?..=parse(last)? {
            let actions = generate(seed);
            match execute(&loaded.engine, &mut serial, &actions) {
                Ok(counts) => {
                    total.rows += counts.rows;
                    total.refused += counts.refused;
                    total.sequences = total.sequences.max(counts.sequences);
                    total.longest_tokens = total.longest_tokens.max(counts.longest_tokens);
                }
                Err(why) => {
                    let engine = &loaded.engine;
                    let smallest =
                        shrink(actions, &mut |a| execute(engine, &mut serial, a).is_err());
                    let reason = execute(engine, &mut serial, &smallest).err().unwrap_or(why);
                    let steps: Vec<String> = smallest.iter().map(ToString::to_string).collect();
                    return Ok(Outcome::fail(format!("schedule {seed}: {reason}"))
                        .with("seed", seed)
                        .with("minimal_schedule", steps));
                }
            }
        }
        if total.rows == 0 {
            return Ok(Outcome::fail("no row was compared"));
        }
        Ok(Outcome::pass(format!("{} rows bitwise equal to serial execution", total.rows))
            .with("rows", total.rows as u64)
            .with("most_sequences", total.sequences as u64)
            .with("longest_tokens", total.longest_tokens as u64)
            .with("refused_truncations", total.refused as u64))
    }
}
