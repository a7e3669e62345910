//! The shipped gate holds; loops with one planted defect fail.

use super::gate::{Loop, Scenario, judge};
use crate::engine::{RowOutput, RowWant};
use crate::generation::{
    Choice, GenerateError, Generated, Model, Request, Sampler, Stop, Temperature, generate,
};
use crate::harness::Verdict;
use crate::harness::testing::problems;
use std::ops::ControlFlow;

const FILE: &str = include_str!("../../../../gates/generation-lifecycle.yaml");
const END: [u32; 2] = [9, 7];

#[test]
fn the_shipped_gate_holds() {
    assert_eq!(problems(FILE), [""; 0]);
}

/// The message with which a defective loop fails, over the scenarios of a budget of 3.
fn caught(subject: Loop) -> String {
    let mut scenarios = Vec::new();
    for temperature in [Temperature::GREEDY, Temperature::ONE] {
        for end in [None, Some((0, 7)), Some((1, 9)), Some((3, 7))] {
            for error_after in [None, Some(0), Some(2)] {
                for budget_tokens in [0, 1, 3] {
                    scenarios.push(Scenario {
                        budget_tokens,
                        temperature,
                        end,
                        error_after,
                        cancel_after: None,
                    });
                }
            }
        }
    }
    let right = judge(generate, &scenarios, &END);
    assert_eq!(right.verdict, Verdict::Pass, "{}", right.message);
    let outcome = judge(subject, &scenarios, &END);
    assert_eq!(outcome.verdict, Verdict::Fail, "the defect was not caught");
    outcome.message
}

#[test]
fn a_budget_that_does_not_count_the_first_token_is_caught() {
    let message = caught(|model, request, receive| {
        let more = Request { budget_tokens: request.budget_tokens + 1, ..request.clone() };
        generate(model, &more, receive)
    });
    assert!(message.contains("budget 0"), "{message}");
    let message = caught(|model, request, receive| {
        let one_more = usize::from(request.budget_tokens > 0);
        let budget_tokens = request.budget_tokens + one_more;
        generate(model, &Request { budget_tokens, ..request.clone() }, receive)
    });
    assert!(message.contains("budget 1"), "{message}");
}

#[test]
fn a_zero_budget_that_touches_the_engine_is_caught() {
    let message = caught(|model, request, receive| {
        drop(model.open());
        generate(model, request, receive)
    });
    assert!(message.contains("sequences started: expected 0, found 1"), "{message}");
}

#[test]
fn an_end_token_that_is_missed_is_caught() {
    // Only the first of the end tokens stops.
    let message = caught(|model, request, receive| {
        let first = Request { end_tokens: &request.end_tokens[..1], ..request.clone() };
        generate(model, &first, receive)
    });
    assert!(message.contains("end token 7 after 0"), "{message}");
    // An end token in first place does not stop.
    let message = caught(|model, request, receive| {
        let mut taken = 0;
        let result = generate(model, request, &mut |choice| {
            taken += 1;
            receive(choice)
        });
        match result {
            Ok(g) if taken == 0 && request.budget_tokens > 0 => {
                Ok(Generated { stop: Stop::Budget, ..g })
            }
            other => other,
        }
    });
    assert!(message.contains("after 0: end: expected"), "{message}");
}

#[test]
fn an_error_sold_as_a_short_success_is_caught() {
    let message = caught(|model, request, receive| {
        let mut tokens = Vec::new();
        let result = generate(model, request, &mut |choice| {
            tokens.push(*choice);
            receive(choice)
        });
        match result {
            Err(GenerateError::Engine { produced_tokens, .. }) if produced_tokens > 0 => {
                let words_drawn = produced_tokens as u64;
                Ok(Generated { tokens, stop: Stop::Budget, words_drawn })
            }
            other => other,
        }
    });
    assert!(message.contains("engine error after 2"), "{message}");
}

#[test]
fn a_sequence_that_leaks_is_caught() {
    let message = caught(|model, request, receive| {
        if let Ok(session) = model.open() {
            std::mem::forget(session);
        }
        generate(model, request, receive)
    });
    assert!(message.contains("sequences started"), "{message}");
}

/// A loop of its own that runs the last token through the engine, draws after the end, and forgets
/// its sequence on an error, as the flags say.
fn careless(
    model: &dyn Model,
    request: &Request<'_>,
    receive: &mut dyn FnMut(&Choice) -> ControlFlow<()>,
    (runs_last, draws_after, leaks): (bool, bool, bool),
) -> Result<Generated, GenerateError> {
    let mut generated = Generated { tokens: Vec::new(), stop: Stop::Budget, words_drawn: 0 };
    if request.budget_tokens == 0 {
        return Ok(generated);
    }
    let mut sampler = Sampler::new(request.sampling, model.vocab(), request.choosable_ids);
    let mut session = model.open().map_err(|source| engine(0, source))?;
    let mut pending = request.prompt.to_vec();
    loop {
        let produced = generated.tokens.len();
        let row = match session.forward(&pending, RowWant::Logits) {
            Ok(row) => row,
            Err(source) => {
                if leaks {
                    std::mem::forget(session);
                }
                return Err(engine(produced, source));
            }
        };
        let RowOutput::Logits(logits) = row else { unreachable!("asked for") };
        let choice = sampler.choose(&logits, false).expect("scripted rows are finite");
        generated.words_drawn = sampler.words_drawn();
        if request.end_tokens.contains(&choice.id) {
            if draws_after && sampler.choose(&logits, false).is_ok() {
                generated.words_drawn = sampler.words_drawn();
            }
            generated.stop = Stop::EndToken(choice.id);
            return Ok(generated);
        }
        generated.tokens.push(choice);
        let _ = receive(&choice);
        pending = vec![choice.id];
        if generated.tokens.len() == request.budget_tokens {
            if runs_last {
                let _ = session.forward(&pending, RowWant::Nothing);
            }
            return Ok(generated);
        }
    }
}

fn engine(produced_tokens: usize, source: crate::engine::SequenceError) -> GenerateError {
    GenerateError::Engine { produced_tokens, source }
}

#[test]
fn work_after_the_end_and_leaks_on_errors_are_caught() {
    let message = caught(|m, q, r| careless(m, q, r, (true, false, false)));
    assert!(message.contains("tokens of each forward"), "{message}");
    let message = caught(|m, q, r| careless(m, q, r, (false, true, false)));
    assert!(message.contains("words_drawn: 2"), "{message}");
    let message = caught(|m, q, r| careless(m, q, r, (false, false, true)));
    assert!(message.contains("sequences given back: expected 1, found 0"), "{message}");
}
