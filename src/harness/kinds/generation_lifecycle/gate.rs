//! The gate: its keys, its trials, one scripted generation each.

use super::expected::{Observed, expected, fault};
use crate::generation::scripted::{Line, ScriptedModel};
use crate::generation::{
    Choice, GenerateError, Generated, Model, Request, Sampling, Seed, Temperature, Truncation,
    generate,
};
use crate::harness::kind::{
    Case, Cell, DeviceUse, Fault, GateKind, KindSpec, Outcome, PlanScope, PolicyUse, RunContext,
};
use crate::harness::{Matrix, NonEmpty};
use serde::Deserialize;
use std::ops::ControlFlow;

/// The loop under test: [`generate`], or a defective one in the tests.
pub(super) type Loop = fn(
    &dyn Model,
    &Request<'_>,
    &mut dyn FnMut(&Choice) -> ControlFlow<()>,
) -> Result<Generated, GenerateError>;

/// Budget, end tokens, errors and cleanup of the generation loop. Every combination of the lists
/// is one scripted generation, compared with the rules; a trial holds those of one budget and
/// temperature.
#[derive(Debug, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::harness::kinds) struct GenerationLifecycle {
    /// Largest number of generated tokens.
    budgets_tokens: NonEmpty<usize>,
    /// 0 is greedy.
    temperatures: NonEmpty<f64>,
    /// Ids that end a generation; each takes its turn at every place of `end_after_tokens`.
    end_tokens: NonEmpty<u32>,
    /// Generated tokens before an end token is chosen.
    end_after_tokens: NonEmpty<When>,
    /// Generated tokens before the engine fails.
    error_after_tokens: NonEmpty<When>,
    /// Generated tokens after which the receiver asks to stop.
    cancel_after_tokens: NonEmpty<When>,
}

/// After how many generated tokens something happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
enum When {
    Never,
    After(usize),
}

impl When {
    fn tokens(self) -> Option<usize> {
        match self {
            When::Never => None,
            When::After(tokens) => Some(tokens),
        }
    }
}

/// One scripted generation.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scenario {
    pub(super) budget_tokens: usize,
    pub(super) temperature: Temperature,
    pub(super) end: Option<(usize, u32)>,
    pub(super) error_after: Option<usize>,
    pub(super) cancel_after: Option<usize>,
}

pub(super) const PROMPT: [u32; 3] = [2, 0, 1];
const CONTEXT_TOKENS: usize = 4096;

impl KindSpec for GenerationLifecycle {
    const NAME: &'static str = "generation_lifecycle";
    const DEVICE: DeviceUse = DeviceUse::Host;
    const POLICY: PolicyUse = PolicyUse::None;
}

impl GateKind for GenerationLifecycle {
    fn cases(&self, _scope: &PlanScope) -> Result<Vec<Case>, Fault> {
        if let Some(budget) = self.budgets_tokens.iter().find(|b| **b > CONTEXT_TOKENS / 2) {
            let message = format!("{budget} tokens exceed the script; expected at most 2048");
            return Err(Fault::at("budgets_tokens", message));
        }
        for temperature in self.temperatures.iter() {
            Temperature::new(*temperature).map_err(|e| Fault::at("temperatures", e.to_string()))?;
        }
        Ok(Matrix::new()
            .axis("budget_tokens", &self.budgets_tokens)
            .axis("temperature", &self.temperatures)
            .cases(["scripted"]))
    }

    fn run(&self, cell: &Cell, _context: &RunContext) -> Outcome {
        let axes = cell
            .read("budget_tokens")
            .and_then(|budget| Ok((budget, cell.read::<Temperature>("temperature")?)));
        match axes {
            Ok((budget_tokens, temperature)) => {
                judge(generate, &self.scenarios(budget_tokens, temperature), &self.end_tokens)
            }
            Err(message) => Outcome::error(message),
        }
    }
}

impl GenerationLifecycle {
    fn scenarios(&self, budget_tokens: usize, temperature: Temperature) -> Vec<Scenario> {
        let mut scenarios = Vec::new();
        let ends = self.end_after_tokens.iter().flat_map(|when| match when.tokens() {
            None => vec![None],
            Some(after) => self.end_tokens.iter().map(|id| Some((after, *id))).collect(),
        });
        for end in ends {
            for error in self.error_after_tokens.iter() {
                for cancel in self.cancel_after_tokens.iter() {
                    scenarios.push(Scenario {
                        budget_tokens,
                        temperature,
                        end,
                        error_after: error.tokens(),
                        cancel_after: cancel.tokens(),
                    });
                }
            }
        }
        scenarios
    }
}

/// Runs every scenario and compares what happened with the rules.
pub(super) fn judge(subject: Loop, scenarios: &[Scenario], end_tokens: &[u32]) -> Outcome {
    for scenario in scenarios {
        let observed = observe(subject, scenario, end_tokens);
        let expected = expected(scenario, end_tokens);
        if let Some(difference) = observed.difference_from(&expected) {
            return Outcome::fail(format!("{}: {difference}", scenario.describe()));
        }
    }
    Outcome::pass(format!("{} scripted generations", scenarios.len()))
        .with("generations", scenarios.len())
}

fn observe(subject: Loop, scenario: &Scenario, end_tokens: &[u32]) -> Observed {
    let vocab = end_tokens.iter().copied().max().unwrap_or(0) as usize + 6;
    let model = ScriptedModel::new(vocab, CONTEXT_TOKENS, scenario.script(end_tokens));
    let request = Request {
        prompt: &PROMPT,
        budget_tokens: scenario.budget_tokens,
        end_tokens,
        choosable_ids: vocab,
        sampling: Sampling {
            temperature: scenario.temperature,
            seed: Seed(1),
            truncation: Truncation::NONE,
        },
        log_probs: false,
    };
    let mut received = Vec::new();
    let result = subject(&model, &request, &mut |choice| {
        received.push(choice.id);
        match scenario.cancel_after {
            Some(after) if received.len() >= after => ControlFlow::Break(()),
            _ => ControlFlow::Continue(()),
        }
    });
    Observed { result, received, calls: model.calls() }
}

impl Scenario {
    /// One line per forward that the budget allows, and some more that must not be reached.
    fn script(&self, end_tokens: &[u32]) -> Vec<Line> {
        (0..self.budget_tokens + 3)
            .map(|produced| {
                if self.error_after == Some(produced) {
                    Line::Error(fault())
                } else {
                    Line::Token(self.token(produced, end_tokens))
                }
            })
            .collect()
    }

    /// The token chosen after this many.
    pub(super) fn token(&self, produced: usize, end_tokens: &[u32]) -> u32 {
        match self.end {
            Some((after, id)) if after == produced => id,
            _ => {
                let ordinary: Vec<u32> =
                    (0..).filter(|id| !end_tokens.contains(id)).take(5).collect();
                ordinary[produced % 5]
            }
        }
    }

    fn describe(&self) -> String {
        let mut parts =
            vec![format!("budget {}, temperature {}", self.budget_tokens, self.temperature)];
        if let Some((after, id)) = self.end {
            parts.push(format!("end token {id} after {after}"));
        }
        if let Some(after) = self.error_after {
            parts.push(format!("engine error after {after}"));
        }
        if let Some(after) = self.cancel_after {
            parts.push(format!("stopped by the receiver after {after}"));
        }
        parts.join(", ")
    }
}
