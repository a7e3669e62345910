//! The generation loop.

use super::{Choice, Model, Sampler, Sampling, Session, StepEntry};
use crate::backend::{NonFinite, cpu::LogitsError};
use crate::engine::{RowOutput, RowWant, SequenceError};
use crate::units::mutant;
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
    /// The text came to this stop string, by its place in the receiver's list; the tokens that
    /// completed it are among the tokens.
    StopString(usize),
    /// The budget is used up.
    Budget,
    /// The receiver of the tokens interrupted.
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
    #[error(
        "no token can be chosen after {produced_tokens} generated tokens, at position {position}: \
         {logits}; the checkpoint holds a weight that is NaN, infinite or too large"
    )]
    NonFinite { produced_tokens: usize, position: usize, logits: NonFinite },
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

/// Who gets the tokens.
pub trait Receiver {
    /// A token of a request, by its place in the list, as soon as it is chosen. Breaking ends that
    /// request for the reason given.
    fn token(&mut self, request: usize, choice: &Choice) -> ControlFlow<Stop>;

    /// Asked before every step: whether all requests are to end as [`Stop::Cancelled`].
    fn interrupted(&mut self) -> bool {
        false
    }
}

/// Continues a prompt, handing every token to `receive` as soon as it is chosen; breaking ends the
/// request as [`Stop::Cancelled`].
///
/// # Errors
/// As [`generate_all`].
pub fn generate(
    model: &dyn Model,
    request: &Request<'_>,
    receive: &mut dyn FnMut(&Choice) -> ControlFlow<()>,
) -> Result<Generated, GenerateError> {
    struct One<'r>(&'r mut dyn FnMut(&Choice) -> ControlFlow<()>);
    impl Receiver for One<'_> {
        fn token(&mut self, _: usize, choice: &Choice) -> ControlFlow<Stop> {
            (self.0)(choice).map_break(|()| Stop::Cancelled)
        }
    }
    generate_all(model, std::slice::from_ref(request), &mut One(receive)).swap_remove(0)
}

/// Most sequences that are decoded together; further requests wait for a place.
const TOGETHER: usize = 64;

/// Continues several prompts together, a token of each in one step. Results are one per request, in
/// order; a request's tokens are those that it gets alone.
///
/// * The budget counts the first token. With a budget of zero neither the engine nor the random
///   stream is touched.
/// * An end token stops the request whether it comes first or later; nothing is drawn after it or
///   after the last token of the budget, and the last token is not run through the engine.
/// * A sequence is dropped, and gives back what it holds, on every way out: end, error, a
///   receiver that stops, a panic.
/// * A prompt longer than a step of the model goes in pieces, and the receiver may interrupt
///   between them.
///
/// # Errors
/// [`GenerateError`], each of its own request: a prompt or budget that cannot fit is refused before
/// any work; an engine error after some tokens is an error, not a short success.
pub fn generate_all(
    model: &dyn Model,
    requests: &[Request<'_>],
    receiver: &mut dyn Receiver,
) -> Vec<Result<Generated, GenerateError>> {
    let mut results: Vec<Option<Result<Generated, GenerateError>>> = vec![None; requests.len()];
    let mut waiting = requests.iter().enumerate();
    let mut running: Vec<Running<'_, '_>> = Vec::new();
    loop {
        while running.len() < TOGETHER
            && let Some((index, request)) = waiting.next()
        {
            match Running::start(model, index, request) {
                Ok(Some(started)) => running.push(started),
                Ok(None) => results[index] = Some(Ok(Generated::nothing())),
                Err(error) => results[index] = Some(Err(error)),
            }
        }
        if running.is_empty() {
            break;
        }
        if receiver.interrupted() {
            for mut one in running.drain(..) {
                one.generated.stop = Stop::Cancelled;
                results[one.index] = Some(Ok(one.generated));
            }
            break;
        }
        step(model, &mut running, receiver, &mut results);
    }
    let cancelled = || Ok(Generated { stop: Stop::Cancelled, ..Generated::nothing() });
    results.into_iter().map(|r| r.unwrap_or_else(cancelled)).collect()
}

/// One step: the next token of every sequence that has its prompt behind it, and as much of the
/// others' prompts as there is room for.
fn step(
    model: &dyn Model,
    running: &mut Vec<Running<'_, '_>>,
    receiver: &mut dyn Receiver,
    results: &mut [Option<Result<Generated, GenerateError>>],
) {
    let mut room = model.step_tokens().max(1);
    running.sort_by_key(|one| (one.fed < one.request.prompt.len(), one.index));
    let takes: Vec<usize> = running
        .iter()
        .map(|one| {
            let take = one.pending().len().min(room);
            room -= take;
            take
        })
        .collect();
    let entries = running.iter_mut().zip(&takes).filter(|(_, take)| **take > 0);
    let rows = model.step(entries.map(|(one, take)| one.entry(*take)).collect());
    let mut rows = rows.into_iter();
    let mut takes = takes.into_iter();
    running.retain_mut(|one| {
        let take = takes.next().unwrap_or(0);
        let Some(row) = (take > 0).then(|| rows.next()).flatten() else { return true };
        match one.advance(row, take, receiver) {
            ControlFlow::Continue(()) => true,
            ControlFlow::Break(result) => {
                results[one.index] = Some(result);
                false
            }
        }
    });
}

/// A request under way.
struct Running<'m, 'r> {
    index: usize,
    request: &'r Request<'r>,
    session: Box<dyn Session + 'm>,
    chooser: Chooser,
    /// Tokens of the prompt that the model has.
    fed: usize,
    /// The token chosen last, once the prompt is fed.
    last: [u32; 1],
    generated: Generated,
}

impl<'m, 'r> Running<'m, 'r> {
    /// Checks and opens a request; `None` if its budget is zero.
    fn start(
        model: &'m dyn Model,
        index: usize,
        request: &'r Request<'r>,
    ) -> Result<Option<Running<'m, 'r>>, GenerateError> {
        if request.budget_tokens == 0 {
            return Ok(None);
        }
        request.check_size(model.context_tokens())?;
        let session =
            model.open().map_err(|source| GenerateError::Engine { produced_tokens: 0, source })?;
        Ok(Some(Running {
            index,
            request,
            chooser: Chooser::new(request, model.vocab(), session.draws()),
            session,
            fed: 0,
            last: [0],
            generated: Generated::nothing(),
        }))
    }

    /// The tokens that the model does not have yet.
    fn pending(&self) -> &[u32] {
        match &self.request.prompt[self.fed..] {
            [] => &self.last,
            rest => rest,
        }
    }

    /// The next `take` pending tokens; something is wanted of the last one only.
    fn entry(&mut self, take: usize) -> StepEntry<'_, 'm> {
        let prompt = &self.request.prompt[self.fed..];
        let (tokens, ends) = match prompt {
            [] => (&self.last[..], true),
            rest => (&rest[..take], take == rest.len()),
        };
        let want = if ends { self.chooser.want() } else { RowWant::Nothing };
        StepEntry { session: self.session.as_mut(), tokens, want }
    }

    /// Takes what a step gave.
    fn advance(
        &mut self,
        row: Result<RowOutput, SequenceError>,
        take: usize,
        receiver: &mut dyn Receiver,
    ) -> ControlFlow<Result<Generated, GenerateError>> {
        let produced_tokens = self.generated.tokens.len();
        let no_numbers =
            |position, logits| Err(GenerateError::NonFinite { produced_tokens, position, logits });
        let row = match row {
            Ok(row) => row,
            Err(SequenceError::NonFinite { position, logits }) => {
                return ControlFlow::Break(no_numbers(position, logits));
            }
            Err(source) => {
                return ControlFlow::Break(Err(GenerateError::Engine { produced_tokens, source }));
            }
        };
        self.fed = (self.fed + take).min(self.request.prompt.len());
        let prompt_tokens = self.request.prompt.len();
        if produced_tokens == 0 && self.fed < prompt_tokens {
            return ControlFlow::Continue(());
        }
        let choice = match self.chooser.choose(row, produced_tokens) {
            Ok(choice) => choice,
            Err(GenerateError::Logits { source: LogitsError::NotFinite(logits), .. }) => {
                return ControlFlow::Break(no_numbers(prompt_tokens + produced_tokens - 1, logits));
            }
            Err(error) => return ControlFlow::Break(Err(error)),
        };
        self.generated.words_drawn = self.chooser.sampler.words_drawn();
        let ends = match mutant!("one_end_token") {
            true => self.request.end_tokens.first() == Some(&choice.id),
            false => self.request.end_tokens.contains(&choice.id),
        };
        if ends {
            if mutant!("end_token_returned") {
                self.generated.tokens.push(choice);
            }
            return self.stop(Stop::EndToken(choice.id));
        }
        self.generated.tokens.push(choice);
        if let ControlFlow::Break(stop) = receiver.token(self.index, &choice) {
            return self.stop(stop);
        }
        let first_free = usize::from(mutant!("budget_excludes_first"));
        if self.generated.tokens.len() == self.request.budget_tokens + first_free {
            return self.stop(Stop::Budget);
        }
        self.last = [choice.id];
        ControlFlow::Continue(())
    }

    fn stop(&mut self, stop: Stop) -> ControlFlow<Result<Generated, GenerateError>> {
        let generated = std::mem::replace(&mut self.generated, Generated::nothing());
        ControlFlow::Break(Ok(Generated { stop, ..generated }))
    }
}

/// What is asked of each row, and the choice made from it.
struct Chooser {
    sampler: Sampler,
    want: RowWant,
    log_probs: bool,
    vocab: usize,
    /// The session draws tokens where nothing else is wanted of them.
    device_draws: bool,
}

impl Chooser {
    fn new(request: &Request<'_>, vocab: usize, session_draws: bool) -> Chooser {
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
            device_draws: session_draws && !request.log_probs,
        }
    }

    /// What to ask of the next row.
    fn want(&self) -> RowWant {
        let draw = self.device_draws.then(|| self.sampler.next_draw()).flatten();
        draw.map_or_else(|| self.want.clone(), RowWant::Sampled)
    }

    fn choose(&mut self, row: RowOutput, produced_tokens: usize) -> Result<Choice, GenerateError> {
        match (&self.want, row) {
            (RowWant::Greedy, RowOutput::Greedy(id)) if (id as usize) < self.vocab => {
                Ok(Choice { id, log_probs: None })
            }
            (RowWant::Logits, RowOutput::Sampled(id)) if self.device_draws => {
                self.sampler.drew();
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
