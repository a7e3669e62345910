//! The generation loop.

use super::{Choice, Model, Sampler, Sampling};
use crate::backend::cpu::LogitsError;
use crate::engine::{RowOutput, RowWant, SequenceError};
use std::ops::ControlFlow;

/// What one generation is asked to do.
#[derive(Clone, Debug)]
pub struct Request<'a> {
    /// Token ids of the prompt; at least one.
    pub prompt: &'a [u32],
    /// Largest number of generated tokens, the first one included.
    pub budget_tokens: usize,
    /// Ids that end the generation wherever they are chosen.
    pub end_tokens: &'a [u32],
    /// Ids below this may be chosen: those the tokeniser has.
    pub choosable_ids: usize,
    pub sampling: Sampling,
    /// Whether every token comes with its log-probabilities.
    pub log_probs: bool,
}

impl Request<'_> {
    /// Whether prompt and generated tokens fit a context; the last generated token never enters the
    /// sequence. A zero budget always fits.
    ///
    /// # Errors
    /// [`GenerateError::EmptyPrompt`] or [`GenerateError::ContextTooSmall`].
    pub fn check_size(&self, context_tokens: usize) -> Result<(), GenerateError> {
        let Request { prompt, budget_tokens, .. } = *self;
        let prompt_tokens = prompt.len();
        match budget_tokens {
            0 => Ok(()),
            _ if prompt_tokens == 0 => Err(GenerateError::EmptyPrompt),
            _ => match prompt_tokens.checked_add(budget_tokens - 1) {
                Some(end) if end <= context_tokens => Ok(()),
                _ => Err(GenerateError::ContextTooSmall {
                    prompt_tokens,
                    budget_tokens,
                    context_tokens,
                }),
            },
        }
    }
}

/// Why a generation stopped, other than by an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// This end token was chosen; it is not among the tokens.
    EndToken(u32),
    /// The budget is used up.
    Budget,
    /// The receiver of the tokens asked to stop.
    Cancelled,
}

/// A finished generation.
#[derive(Clone, Debug, PartialEq)]
pub struct Generated {
    /// The generated tokens, without an end token.
    pub tokens: Vec<Choice>,
    pub stop: Stop,
    /// Random words that were drawn.
    pub words_drawn: u64,
}

impl Generated {
    /// The generation of a zero budget.
    pub fn nothing() -> Generated {
        Generated { tokens: Vec::new(), stop: Stop::Budget, words_drawn: 0 }
    }

    /// The generated ids.
    pub fn ids(&self) -> Vec<u32> {
        self.tokens.iter().map(|t| t.id).collect()
    }
}

/// A generation that failed. `produced_tokens` were handed out before; they are no success.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum GenerateError {
    #[error("the prompt has no tokens; give at least one")]
    EmptyPrompt,
    #[error(
        "a prompt of {prompt_tokens} and a budget of {budget_tokens} tokens do not fit the context \
         of {context_tokens} tokens{}",
        fitting_budget(*prompt_tokens, *context_tokens)
    )]
    ContextTooSmall { prompt_tokens: usize, budget_tokens: usize, context_tokens: usize },
    #[error("the engine failed after {produced_tokens} generated tokens: {source}")]
    Engine { produced_tokens: usize, source: SequenceError },
    #[error("no token can be chosen after {produced_tokens} generated tokens: {source}")]
    Logits { produced_tokens: usize, source: LogitsError },
    #[error("the engine answered with something else than the {wanted} it was asked for")]
    WrongOutput { wanted: &'static str },
}

fn fitting_budget(prompt_tokens: usize, context_tokens: usize) -> String {
    match (context_tokens + 1).checked_sub(prompt_tokens) {
        None | Some(0) => "; shorten the prompt".into(),
        Some(budget) => format!("; a budget of at most {budget} does"),
    }
}

/// Continues a prompt, handing every token to `receive` as soon as it is chosen.
///
/// * The budget counts the first token. With a budget of zero neither the engine nor the random
///   stream is touched.
/// * An end token stops the request whether it comes first or later; nothing is drawn after it or
///   after the last token of the budget, and the last token is not run through the engine.
/// * The sequence is dropped, and gives back what it holds, on every way out: end, error, a
///   receiver that stops, a panic.
///
/// # Errors
/// [`GenerateError`]: a prompt or budget that cannot fit is refused before any work; an engine
/// error after some tokens is an error, not a short success.
pub fn generate(
    model: &dyn Model,
    request: &Request<'_>,
    receive: &mut dyn FnMut(&Choice) -> ControlFlow<()>,
) -> Result<Generated, GenerateError> {
    let mut generated = Generated::nothing();
    if request.budget_tokens == 0 {
        return Ok(generated);
    }
    request.check_size(model.context_tokens())?;
    let mut chooser = Chooser::new(request, model.vocab());
    let mut session =
        model.open().map_err(|source| GenerateError::Engine { produced_tokens: 0, source })?;
    let mut pending: &[u32] = request.prompt;
    let mut last: [u32; 1];
    loop {
        let produced_tokens = generated.tokens.len();
        let row = session
            .forward(pending, chooser.want.clone())
            .map_err(|source| GenerateError::Engine { produced_tokens, source })?;
        let choice = chooser.choose(row, produced_tokens)?;
        generated.words_drawn = chooser.sampler.words_drawn();
        if request.end_tokens.contains(&choice.id) {
            generated.stop = Stop::EndToken(choice.id);
            return Ok(generated);
        }
        generated.tokens.push(choice);
        if receive(&choice).is_break() {
            generated.stop = Stop::Cancelled;
            return Ok(generated);
        }
        if generated.tokens.len() == request.budget_tokens {
            return Ok(generated);
        }
        last = [choice.id];
        pending = &last;
    }
}

/// What is asked of each row, and the choice made from it.
struct Chooser {
    sampler: Sampler,
    want: RowWant,
    log_probs: bool,
    vocab: usize,
}

impl Chooser {
    fn new(request: &Request<'_>, vocab: usize) -> Chooser {
        // An index instead of a row of logits, where that is all that is needed. The engine's
        // arg-max runs over every row, so a padded vocabulary needs the logits.
        let index_suffices = request.sampling.temperature.is_greedy()
            && !request.log_probs
            && request.choosable_ids >= vocab;
        Chooser {
            sampler: Sampler::new(request.sampling, vocab, request.choosable_ids),
            want: if index_suffices { RowWant::Greedy } else { RowWant::Logits },
            log_probs: request.log_probs,
            vocab,
        }
    }

    fn choose(&mut self, row: RowOutput, produced_tokens: usize) -> Result<Choice, GenerateError> {
        match (&self.want, row) {
            (RowWant::Greedy, RowOutput::Greedy(id)) if (id as usize) < self.vocab => {
                Ok(Choice { id, log_probs: None })
            }
            (RowWant::Logits, RowOutput::Logits(logits)) => self
                .sampler
                .choose(&logits, self.log_probs)
                .map_err(|source| GenerateError::Logits { produced_tokens, source }),
            (RowWant::Greedy, _) => Err(GenerateError::WrongOutput { wanted: "arg-max id" }),
            _ => Err(GenerateError::WrongOutput { wanted: "row of logits" }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::scripted::{Calls, Line, ScriptedModel};
    use super::super::{Seed, Temperature};
    use super::*;

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
        Sampling { temperature: Temperature::ONE, seed: Seed(5) }
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
        assert_eq!(
            generate(&model, &empty, &mut keep_going).unwrap_err(),
            GenerateError::EmptyPrompt
        );
        let endless = request(usize::MAX, warm());
        assert!(generate(&model, &endless, &mut keep_going).is_err());
        assert_eq!(model.calls(), Calls::default());
        // The last generated token never enters the sequence, so this one fits exactly.
        assert_eq!(
            generate(&model, &request(3, warm()), &mut keep_going).unwrap().ids(),
            [3, 3, 3]
        );
    }

    #[test]
    fn rows_without_a_choice_are_errors_that_say_how_far_it_got() {
        let script = vec![Line::Token(3), Line::Logits(vec![f32::NAN; 8])];
        let model = ScriptedModel::new(8, 64, script);
        let error = generate(&model, &request(5, warm()), &mut keep_going).unwrap_err();
        assert_eq!(
            error.to_string(),
            "no token can be chosen after 1 generated tokens: 8 of 8 logits are not finite, the \
             first is NaN at id 0"
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
}
