//! The rules of a generation, written a second time as what must be seen from outside.

use super::gate::{PROMPT, Scenario};
use crate::engine::SequenceError;
use crate::generation::scripted::Calls;
use crate::generation::{GenerateError, Generated, Stop};

/// What a loop did.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Observed {
    pub(super) result: Result<Generated, GenerateError>,
    /// Ids handed to the receiver.
    pub(super) received: Vec<u32>,
    pub(super) calls: Calls,
}

/// What a loop must do.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Expected {
    /// How it ends.
    ending: Ending,
    /// Ids handed out, and those of a success.
    tokens: Vec<u32>,
    calls: Calls,
}

#[derive(Clone, Debug, PartialEq)]
enum Ending {
    Stopped { stop: Stop, words_drawn: u64 },
    Failed { produced_tokens: usize },
}

/// The error that scripts plant.
pub(super) fn fault() -> SequenceError {
    SequenceError::DeviceFault { region: "script".into(), message: "planted".into() }
}

/// Works out by hand what the rules say, one generated token after the other.
pub(super) fn expected(scenario: &Scenario, end_tokens: &[u32]) -> Expected {
    let mut tokens = Vec::new();
    let mut calls = Calls::default();
    let per_token = u64::from(!scenario.temperature.is_greedy());
    let mut words_drawn = 0;
    let ending = loop {
        let produced = tokens.len();
        if produced == scenario.budget_tokens {
            break Ending::Stopped { stop: Stop::Budget, words_drawn };
        }
        calls.forwards.push(match tokens.last() {
            None => PROMPT.to_vec(),
            Some(last) => vec![*last],
        });
        if scenario.error_after == Some(produced) {
            break Ending::Failed { produced_tokens: produced };
        }
        words_drawn += per_token;
        let id = scenario.token(produced, end_tokens);
        if end_tokens.contains(&id) {
            break Ending::Stopped { stop: Stop::EndToken(id), words_drawn };
        }
        tokens.push(id);
        if scenario.cancel_after.is_some_and(|after| tokens.len() >= after) {
            break Ending::Stopped { stop: Stop::Cancelled, words_drawn };
        }
    };
    let sequences = usize::from(scenario.budget_tokens > 0);
    calls.opened = sequences;
    calls.released = sequences;
    Expected { ending, tokens, calls }
}

impl Observed {
    /// What was expected and found instead, if anything.
    pub(super) fn difference_from(&self, expected: &Expected) -> Option<String> {
        let ending = match &self.result {
            Ok(g) => Ending::Stopped { stop: g.stop, words_drawn: g.words_drawn },
            Err(GenerateError::Engine { produced_tokens, source }) if *source == fault() => {
                Ending::Failed { produced_tokens: *produced_tokens }
            }
            Err(other) => return Some(format!("unexpected error: {other}")),
        };
        let returned = self.result.as_ref().map(Generated::ids).ok();
        let expected_return =
            matches!(expected.ending, Ending::Stopped { .. }).then(|| expected.tokens.clone());
        differs("end", &expected.ending, &ending)
            .or_else(|| differs("tokens handed out", &expected.tokens, &self.received))
            .or_else(|| differs("tokens returned", &expected_return, &returned))
            .or_else(|| differs("sequences started", &expected.calls.opened, &self.calls.opened))
            .or_else(|| {
                differs("sequences given back", &expected.calls.released, &self.calls.released)
            })
            .or_else(|| {
                differs("tokens of each forward", &expected.calls.forwards, &self.calls.forwards)
            })
    }
}

fn differs<T: PartialEq + std::fmt::Debug>(what: &str, expected: &T, found: &T) -> Option<String> {
    (expected != found).then(|| format!("{what}: expected {expected:?}, found {found:?}"))
}
