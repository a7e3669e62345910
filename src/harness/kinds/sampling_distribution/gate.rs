//! The gate: one trial per distribution.

use super::super::logits_source::LogitsSource;
use super::expected::{TruncationSpec, independent};
use super::judge::{judge, observe};
use crate::generation::{Sampler, Sampling, Seed, Temperature, Truncation};
use crate::harness::NonEmpty;
use crate::harness::kind::{
    Case, Cell, DeviceUse, Fault, GateKind, KindSpec, Outcome, PlanScope, PolicyUse, RunContext,
};
use serde::Deserialize;

/// The shares of many draws come out as an independent distribution says.
#[derive(Debug, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::harness::kinds) struct SamplingDistribution {
    /// Draws per distribution.
    draws: u64,
    /// Bound on the largest difference, over all ids, of an observed share from its probability,
    /// and likewise of the running share (ids up to this one) from the running probability.
    max_deviation: f64,
    distributions: NonEmpty<Distribution>,
}

/// One row of logits to draw from.
#[derive(Clone, Debug, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
struct Distribution {
    /// Part of the trial name.
    name: String,
    logits: LogitsSource,
    temperature: f64,
    seed: u64,
    /// Ids from here on are logits without a token; left out, every logit has one.
    choosable_ids: Option<usize>,
    /// Which ids keep their mass; left out, all do.
    truncation: Option<TruncationSpec>,
    /// The probability of every id; left out, it is computed here, in FP64 by the platform's
    /// exponential in one serial sum, and by ranks in place of sorting: other arithmetic than the
    /// sampler's.
    expected: Option<Vec<f64>>,
}

impl KindSpec for SamplingDistribution {
    const NAME: &'static str = "sampling_distribution";
    const DEVICE: DeviceUse = DeviceUse::Host;
    const POLICY: PolicyUse = PolicyUse::None;
}

impl GateKind for SamplingDistribution {
    fn cases(&self, _scope: &PlanScope) -> Result<Vec<Case>, Fault> {
        if self.draws == 0 {
            return Err(Fault::at("draws", "no draw shows nothing; expected at least 1"));
        }
        if !(self.max_deviation > 0.0 && self.max_deviation < 1.0) {
            let message = format!("expected a bound between 0 and 1, found {}", self.max_deviation);
            return Err(Fault::at("max_deviation", message));
        }
        for distribution in self.distributions.iter() {
            distribution
                .prepare()
                .map_err(|m| Fault::at("distributions", format!("`{}`: {m}", distribution.name)))?;
        }
        Ok(self.distributions.iter().map(|d| Case::named(&d.name)).collect())
    }

    fn run(&self, cell: &Cell, _context: &RunContext) -> Outcome {
        let name = cell.case.as_deref().unwrap_or_default();
        let Some(distribution) = self.distributions.iter().find(|d| d.name == name) else {
            return Outcome::error(format!("the gate has no distribution `{name}`"));
        };
        let prepared = match distribution.prepare() {
            Ok(prepared) => prepared,
            Err(message) => return Outcome::error(message),
        };
        let sampling = Sampling {
            temperature: prepared.temperature,
            seed: Seed(distribution.seed),
            truncation: prepared.truncation,
        };
        let mut sampler = Sampler::new(sampling, prepared.logits.len(), prepared.choosable_ids);
        let observed = observe(prepared.logits.len(), self.draws, &mut || {
            sampler.choose(&prepared.logits, false).map(|c| c.id).map_err(|e| e.to_string())
        });
        match observed {
            Err(message) => Outcome::fail(message),
            Ok(counts) => judge(&counts, &prepared.expected, self.max_deviation)
                .with("words_drawn", sampler.words_drawn()),
        }
    }
}

/// A distribution made ready to draw from.
struct Prepared {
    logits: Vec<f32>,
    temperature: Temperature,
    choosable_ids: usize,
    truncation: Truncation,
    expected: Vec<f64>,
}

impl Distribution {
    fn prepare(&self) -> Result<Prepared, String> {
        let logits = self.logits.row()?;
        let temperature = Temperature::new(self.temperature).map_err(|e| e.to_string())?;
        if temperature.is_greedy() {
            return Err("greedy choice (temperature 0) has no distribution".into());
        }
        let choosable_ids = self.choosable_ids.unwrap_or(logits.len());
        if choosable_ids == 0 || choosable_ids > logits.len() {
            return Err(format!("choosable_ids is {choosable_ids} of {} logits", logits.len()));
        }
        let truncation = self.truncation.map_or(Ok(Truncation::NONE), |t| t.truncation())?;
        let expected = match &self.expected {
            None => independent(
                &logits[..choosable_ids],
                self.temperature,
                self.truncation,
                logits.len(),
            )?,
            Some(listed) if listed.len() == logits.len() => listed.clone(),
            Some(listed) => {
                return Err(format!(
                    "{} expected probabilities for {} logits",
                    listed.len(),
                    logits.len()
                ));
            }
        };
        let sum: f64 = expected.iter().sum();
        if expected.iter().any(|p| !(0.0..=1.0).contains(p)) || (sum - 1.0).abs() > 1e-9 {
            return Err(format!("the expected probabilities sum to {sum}, not to 1"));
        }
        Ok(Prepared { logits, temperature, choosable_ids, truncation, expected })
    }
}
