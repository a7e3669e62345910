//! `sampling_distribution`: many draws of the sampler against an independent distribution.

use super::logits_source::LogitsSource;
use crate::generation::{Sampler, Sampling, Seed, Temperature, Truncation};
use crate::harness::NonEmpty;
use crate::harness::kind::{
    Case, Cell, DeviceUse, Fault, GateKind, KindSpec, Outcome, PlanScope, PolicyUse, RunContext,
};
use serde::Deserialize;

/// The shares of many draws come out as an independent distribution says.
#[derive(Debug, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct SamplingDistribution {
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
    /// The probability of every id; left out, it is computed here, in FP64 by the platform's
    /// exponential in one serial sum: other arithmetic than the sampler's.
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
            truncation: Truncation::NONE,
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
        let expected = match &self.expected {
            None => independent(&logits[..choosable_ids], self.temperature, logits.len()),
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
        Ok(Prepared { logits, temperature, choosable_ids, expected })
    }
}

/// softmax(`choosable` / T), zero-padded to `len`.
fn independent(choosable: &[f32], temperature: f64, len: usize) -> Vec<f64> {
    let max = choosable.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let mut p: Vec<f64> =
        choosable.iter().map(|z| ((f64::from(*z) - f64::from(max)) / temperature).exp()).collect();
    let total: f64 = p.iter().sum();
    p.iter_mut().for_each(|w| *w /= total);
    p.resize(len, 0.0);
    p
}

/// How often each id came out of `draws` calls.
fn observe(
    ids: usize,
    draws: u64,
    draw: &mut dyn FnMut() -> Result<u32, String>,
) -> Result<Vec<u64>, String> {
    let mut counts = vec![0u64; ids];
    for n in 0..draws {
        let id = draw().map_err(|e| format!("draw {n} was refused: {e}"))?;
        match counts.get_mut(id as usize) {
            Some(count) => *count += 1,
            None => return Err(format!("draw {n} gave id {id} of {ids}")),
        }
    }
    Ok(counts)
}

fn judge(counts: &[u64], expected: &[f64], max_deviation: f64) -> Outcome {
    let draws: u64 = counts.iter().sum();
    let mut worst = (0.0, 0);
    let mut running_worst = (0.0, 0);
    let (mut running, mut running_expected) = (0.0, 0.0);
    let mut massless = None;
    for (id, (count, p)) in counts.iter().zip(expected).enumerate() {
        let share = *count as f64 / draws as f64;
        running += share;
        running_expected += p;
        if (share - p).abs() > worst.0 {
            worst = ((share - p).abs(), id);
        }
        if (running - running_expected).abs() > running_worst.0 {
            running_worst = ((running - running_expected).abs(), id);
        }
        if *p == 0.0 && *count > 0 {
            massless = massless.or(Some(id));
        }
    }
    let message = match massless {
        Some(id) => format!("id {id} has no mass and was drawn {} times", counts[id]),
        None if worst.0 > max_deviation => format!(
            "expected a share of {:.5} for id {}, found {:.5} in {draws} draws: off by more than \
             {max_deviation}",
            expected[worst.1],
            worst.1,
            counts[worst.1] as f64 / draws as f64
        ),
        None if running_worst.0 > max_deviation => format!(
            "the share of ids up to {} is off by {:.5}, more than {max_deviation}, in {draws} draws",
            running_worst.1, running_worst.0
        ),
        None => String::new(),
    };
    let outcome = if message.is_empty() {
        Outcome::pass(format!(
            "largest deviation {:.5} in {draws} draws",
            worst.0.max(running_worst.0)
        ))
    } else {
        Outcome::fail(message)
    };
    outcome
        .with("draws", draws)
        .number("largest_share_deviation", worst.0)
        .number("largest_running_deviation", running_worst.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::Verdict;
    use crate::harness::testing::{gate, problems};
    use crate::units::SplitMix64;

    const FILE: &str = include_str!("../../../gates/sampling-distribution.yaml");

    #[test]
    fn the_shipped_gate_holds_with_a_tenth_of_the_draws() {
        assert_eq!(problems(&FILE.replace("draws: 200000", "draws: 20000")), [""; 0]);
    }

    /// Judges 20,000 draws of a sampler that is wrong in one way.
    fn planted(logits: &[f32], temperature: f64, choose: fn(&[f64], f64) -> usize) -> Outcome {
        let p = independent(logits, temperature, logits.len());
        let mut rng = SplitMix64::new(1);
        let mut draw = || Ok(choose(&p, rng.next_unit()) as u32);
        let counts = observe(logits.len(), 20_000, &mut draw).unwrap();
        judge(&counts, &p, 0.01)
    }

    fn right(p: &[f64], unit: f64) -> usize {
        let mut sum = 0.0;
        p.iter()
            .position(|w| {
                sum += w;
                sum > unit
            })
            .unwrap_or(p.len() - 1)
    }

    #[test]
    fn planted_defects_fail() {
        let logits = [0.0, 1.0, 2.0, -1000.0];
        assert_eq!(planted(&logits, 1.0, right).verdict, Verdict::Pass);
        let temperature_ignored = planted(&logits, 1.0, |p, unit| {
            let squared: Vec<f64> = p.iter().map(|w| w * w).collect();
            let total: f64 = squared.iter().sum();
            right(&squared, unit * total)
        });
        assert_eq!(temperature_ignored.verdict, Verdict::Fail);
        let next_id = planted(&logits, 1.0, |p, unit| (right(p, unit) + 1).min(3));
        assert!(next_id.message.contains("id 3 has no mass"), "{}", next_id.message);
        // Each share is right within 0.01, but a block of ids loses mass to another one.
        let wide = [0.0; 1000];
        let shifted = planted(&wide, 1.0, |p, unit| {
            let id = right(p, unit);
            if id < 250 && unit * 1e6 % 1.0 < 0.2 { id + 500 } else { id }
        });
        assert!(shifted.message.contains("the share of ids up to"), "{}", shifted.message);
    }

    #[test]
    fn files_that_decide_nothing_are_refused() {
        let fault = |from: &str, to: &str| {
            let file = gate(&FILE.replacen(from, to, 1)).unwrap();
            let scope = PlanScope {
                device: crate::backend::DeviceKind::Cpu,
                policy: None,
                long: false,
                root: Default::default(),
                base: Default::default(),
            };
            file.kind.cases(&scope).unwrap_err().message
        };
        assert!(fault("draws: 200000", "draws: 0").contains("at least 1"));
        assert!(fault("max_deviation: 0.01", "max_deviation: 1.5").contains("between 0 and 1"));
        assert!(fault("temperature: 0.5", "temperature: -1").contains("is negative"));
        assert!(fault("[0.25, 0.75]", "[0.25, 0.5]").contains("sum to 0.75"));
    }
}
