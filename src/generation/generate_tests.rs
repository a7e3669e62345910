//! The generation loop against a scripted engine.

use super::scripted::{Calls, Line, ScriptedModel};
use super::*;
use crate::engine::SequenceError;
use std::ops::ControlFlow;

const END: [u32; 2] = [7, 6];

fn request(budget_tokens: usize, sampling: Sampling) -> Request<'static> {
    Request {
        prompt: &[1, 2],
        budget_tokens,
        end_tokens: &END,
        choosable_ids: 8,
        sampling,
        log_probs: false,
    }
}

fn warm() -> Sampling {
    Sampling { temperature: Temperature::ONE, seed: Seed(5), truncation: Truncation::NONE }
}

fn fault() -> SequenceError {
    SequenceError::DeviceFault { region: "gemm".into(), message: "planted".into() }
}

fn keep_going(_: &Choice) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

#[test]
fn a_receiver_that_stops_ends_the_request_cleanly() {
    let model = ScriptedModel::new(8, 64, vec![Line::Token(3); 9]);
    let mut seen = 0;
    let done = generate(&model, &request(9, warm()), &mut |_| {
        seen += 1;
        if seen == 2 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })
    .unwrap();
    assert_eq!((done.stop, done.tokens.len(), done.words_drawn), (Stop::Cancelled, 2, 2));
    assert_eq!(model.calls().forwards, [vec![1, 2], vec![3]]);
    assert_eq!(model.calls().released, 1);
}

#[test]
fn a_panicking_receiver_still_releases_the_sequence() {
    let model = ScriptedModel::new(8, 64, vec![Line::Token(3); 9]);
    let run = std::panic::AssertUnwindSafe(|| {
        generate(&model, &request(9, warm()), &mut |_| panic!("receiver"))
    });
    assert!(std::panic::catch_unwind(run).is_err());
    assert_eq!((model.calls().opened, model.calls().released), (1, 1));
}

#[test]
fn what_cannot_fit_is_refused_before_any_work() {
    let model = ScriptedModel::new(8, 4, vec![Line::Token(3); 9]);
    let error = generate(&model, &request(4, warm()), &mut keep_going).unwrap_err();
    assert_eq!(
        error.to_string(),
        "a prompt of 2 and a budget of 4 tokens do not fit the context of 4 tokens; a budget \
         of at most 3 does"
    );
    let empty = Request { prompt: &[], ..request(1, warm()) };
    assert_eq!(generate(&model, &empty, &mut keep_going).unwrap_err(), GenerateError::EmptyPrompt);
    let endless = request(usize::MAX, warm());
    assert!(generate(&model, &endless, &mut keep_going).is_err());
    assert_eq!(model.calls(), Calls::default());
    // The last generated token never enters the sequence, so this one fits exactly.
    assert_eq!(generate(&model, &request(3, warm()), &mut keep_going).unwrap().ids(), [3, 3, 3]);
}

#[test]
fn rows_without_a_choice_are_errors_that_say_how_far_it_got() {
    let script = vec![Line::Token(3), Line::Logits(vec![f32::NAN; 8])];
    let model = ScriptedModel::new(8, 64, script);
    let error = generate(&model, &request(5, warm()), &mut keep_going).unwrap_err();
    assert_eq!(
        error.to_string(),
        "no token can be chosen after 1 generated tokens, at position 2: 8 of 8 logits are not \
         finite, the first is NaN at id 0; the checkpoint holds a weight that is NaN, infinite or \
         too large"
    );
    let model = ScriptedModel::new(8, 64, vec![Line::Token(3), Line::Error(fault())]);
    let error = generate(&model, &request(5, warm()), &mut keep_going).unwrap_err();
    assert_eq!(error, GenerateError::Engine { produced_tokens: 1, source: fault() });
    assert_eq!(model.calls().released, 1);
}

#[test]
fn a_padded_vocabulary_is_never_chosen_from() {
    // Logits of ids 5 to 7 are the largest; the tokeniser has ids below 5.
    let row = vec![0.0, 1.0, 4.0, 1.0, 0.0, 50.0, 60.0, 70.0];
    for sampling in [Sampling::GREEDY, warm()] {
        let model = ScriptedModel::new(8, 64, vec![Line::Logits(row.clone()); 6]);
        let request = Request { choosable_ids: 5, ..request(6, sampling) };
        let done = generate(&model, &request, &mut keep_going).unwrap();
        assert!(done.ids().iter().all(|id| *id < 5), "{:?}", done.ids());
    }
}

/// Ends a request at a token, and the whole run after some questions.
struct Watch {
    seen: Vec<(usize, u32)>,
    stop_at: Option<u32>,
    questions: usize,
    interrupt_after: usize,
}

impl Receiver for Watch {
    fn token(&mut self, request: usize, choice: &Choice) -> ControlFlow<Stop> {
        self.seen.push((request, choice.id));
        match self.stop_at {
            Some(id) if id == choice.id => ControlFlow::Break(Stop::StopString(3)),
            _ => ControlFlow::Continue(()),
        }
    }

    fn interrupted(&mut self) -> bool {
        self.questions += 1;
        self.questions > self.interrupt_after
    }
}

fn watch(stop_at: Option<u32>, interrupt_after: usize) -> Watch {
    Watch { seen: Vec::new(), stop_at, questions: 0, interrupt_after }
}

#[test]
fn requests_advance_together_and_end_alone() {
    let script = vec![Line::Token(3), Line::Token(4), Line::Token(5)];
    let model = ScriptedModel::new(8, 64, script);
    let requests =
        [request(2, warm()), request(0, warm()), request(3, warm()), request(99, warm())];
    let mut watch = watch(None, usize::MAX);
    let results = generate_all(&model, &requests, &mut watch);
    let ids: Vec<_> = results.iter().map(|r| r.as_ref().map(Generated::ids)).collect();
    assert_eq!(ids[..3], [Ok(vec![3, 4]), Ok(vec![]), Ok(vec![3, 4, 5])]);
    assert!(matches!(results[3], Err(GenerateError::ContextTooSmall { .. })));
    assert_eq!(watch.seen, [(0, 3), (2, 3), (0, 4), (2, 4), (2, 5)]);
    assert_eq!((model.calls().opened, model.calls().released), (2, 2));
}

/// A failing sequence is an error of its own request.
#[test]
fn an_error_ends_one_request() {
    let model = ScriptedModel::new(8, 64, vec![Line::Token(3), Line::Error(fault())]);
    let requests = [request(1, warm()), request(2, warm())];
    let results = generate_all(&model, &requests, &mut watch(None, usize::MAX));
    assert_eq!(results[0].as_ref().unwrap().ids(), [3]);
    assert!(matches!(results[1], Err(GenerateError::Engine { produced_tokens: 1, .. })));
    assert_eq!(model.calls().released, 2);
}

#[test]
fn a_receiver_says_why_it_stops() {
    let model = ScriptedModel::new(8, 64, vec![Line::Token(3), Line::Token(4), Line::Token(5)]);
    let requests = [request(3, warm())];
    let results = generate_all(&model, &requests, &mut watch(Some(4), usize::MAX));
    let done = results[0].as_ref().unwrap();
    assert_eq!((done.ids(), done.stop), (vec![3, 4], Stop::StopString(3)));
    assert_eq!(model.calls().forwards.len(), 2);
}

/// A long prompt goes in pieces, and between them somebody may interrupt.
#[test]
fn a_prompt_can_be_interrupted_before_its_first_token() {
    let lines = vec![Line::Token(3); 9];
    let prompt: Vec<u32> = vec![1; 10];
    let long = Request { prompt: &prompt, ..request(2, warm()) };
    let model = ScriptedModel::new(8, 64, lines.clone()).with_step_tokens(4);
    let results = generate_all(&model, std::slice::from_ref(&long), &mut watch(None, usize::MAX));
    assert_eq!(results[0].as_ref().unwrap().ids(), [3, 3]);
    let lengths = |model: &ScriptedModel| -> Vec<usize> {
        model.calls().forwards.iter().map(Vec::len).collect()
    };
    assert_eq!(lengths(&model), [4, 4, 2, 1]);

    let model = ScriptedModel::new(8, 64, lines).with_step_tokens(4);
    let results = generate_all(&model, &[long], &mut watch(None, 2));
    let done = results[0].as_ref().unwrap();
    assert_eq!((done.stop, done.tokens.len(), done.words_drawn), (Stop::Cancelled, 0, 0));
    assert_eq!(lengths(&model), [4, 4]);
    assert_eq!(model.calls().released, 1);
}
