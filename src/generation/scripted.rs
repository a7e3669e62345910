//! An engine that follows a script, for tests and gates of the generation loop only.
//!
//! It computes nothing: each forward gives the next line of the script, and everything that the
//! loop does is counted. It shows how the loop behaves, never how a model does.

use super::{Model, Session};
use crate::engine::{RowOutput, RowWant, SequenceError};
use std::cell::RefCell;

/// One line of the script: what a forward gives.
#[derive(Clone, Debug, PartialEq)]
pub enum Line {
    /// A row whose largest logit is at this id, by a margin that leaves other ids no mass.
    Token(u32),
    /// This row.
    Logits(Vec<f32>),
    /// This error.
    Error(SequenceError),
}

/// What the loop did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Calls {
    /// Sequences started.
    pub opened: usize,
    /// Sequences given back.
    pub released: usize,
    /// Token ids of every forward, in order.
    pub forwards: Vec<Vec<u32>>,
}

/// A model whose every sequence follows the same script.
#[derive(Debug)]
pub struct ScriptedModel {
    vocab: usize,
    context_tokens: usize,
    step_tokens: usize,
    script: Vec<Line>,
    calls: RefCell<Calls>,
}

impl ScriptedModel {
    /// A model with this vocabulary and script.
    pub fn new(vocab: usize, context_tokens: usize, script: Vec<Line>) -> ScriptedModel {
        let step_tokens = usize::MAX;
        ScriptedModel { vocab, context_tokens, step_tokens, script, calls: RefCell::default() }
    }

    /// The same with steps of at most so many tokens.
    pub fn with_step_tokens(self, step_tokens: usize) -> ScriptedModel {
        ScriptedModel { step_tokens, ..self }
    }

    /// What was done with the model so far.
    pub fn calls(&self) -> Calls {
        self.calls.borrow().clone()
    }
}

impl Model for ScriptedModel {
    fn vocab(&self) -> usize {
        self.vocab
    }

    fn context_tokens(&self) -> usize {
        self.context_tokens
    }

    fn step_tokens(&self) -> usize {
        self.step_tokens
    }

    fn open(&self) -> Result<Box<dyn Session + '_>, SequenceError> {
        self.calls.borrow_mut().opened += 1;
        Ok(Box::new(ScriptedSession { model: self, line: 0 }))
    }
}

#[derive(Debug)]
struct ScriptedSession<'a> {
    model: &'a ScriptedModel,
    line: usize,
}

impl Session for ScriptedSession<'_> {
    fn forward(&mut self, tokens: &[u32], want: RowWant) -> Result<RowOutput, SequenceError> {
        self.model.calls.borrow_mut().forwards.push(tokens.to_vec());
        if want == RowWant::Nothing {
            // A piece of a prompt: the script speaks of its end.
            return Ok(RowOutput::Nothing);
        }
        let line = self.model.script.get(self.line).cloned();
        self.line += 1;
        let logits = match line {
            Some(Line::Error(error)) => return Err(error),
            Some(Line::Logits(logits)) => logits,
            Some(Line::Token(id)) => {
                let mut logits = vec![0.0; self.model.vocab];
                logits[id as usize] = 1000.0;
                logits
            }
            None => {
                return Err(SequenceError::DeviceFault {
                    region: "script".into(),
                    message: format!("forward {} is past the end of the script", self.line),
                });
            }
        };
        match want {
            RowWant::Greedy => {
                let id = crate::backend::cpu::greedy(&logits).map_err(|e| {
                    SequenceError::DeviceFault { region: "script".into(), message: e.to_string() }
                })?;
                Ok(RowOutput::Greedy(id))
            }
            _ => Ok(RowOutput::Logits(logits)),
        }
    }
}

impl Drop for ScriptedSession<'_> {
    fn drop(&mut self) {
        self.model.calls.borrow_mut().released += 1;
    }
}
