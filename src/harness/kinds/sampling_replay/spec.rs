//! The checks as files give them.

use super::check::row_of_text;
use crate::harness::NonEmpty;
use crate::harness::kinds::logits_source::LogitsSource;
use crate::units::Exit;
use serde::Deserialize;

#[derive(Debug, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub(super) enum Check {
    /// The random words of a seed.
    Words { seed: u64, expected: NonEmpty<u64> },
    /// The id that one random word selects.
    Select { logits: LogitsSource, temperature: f64, word: u64, id: u32 },
    /// Tokens drawn one after the other from one row; one random word each, none at temperature 0.
    Replay {
        logits: LogitsSource,
        temperature: f64,
        seed: u64,
        tokens: NonEmpty<u32>,
        /// Natural-log probability of each token under the model and under the sampler, within
        /// 1e-12 of the larger of 1 and itself.
        log_probs: Option<NonEmpty<[f64; 2]>>,
    },
    /// The generation loop gives the same tokens again: as they stream, at the end, and with
    /// log-probabilities asked for. The rows are seeded with `seed`, `seed` + 1, ….
    Parity { ids: usize, tokens: usize, temperature: f64, seed: u64 },
    /// A row of logits that is refused before a random word is drawn.
    RefuseRow {
        /// As text: `nan`, `inf`, `-inf` and numbers.
        logits: Vec<String>,
        vocab: usize,
        /// The message.
        error: String,
    },
    /// Text that is refused as a temperature or as a seed.
    RefuseText {
        temperature: Option<String>,
        seed: Option<String>,
        /// The message.
        error: String,
    },
    /// Text that is accepted exactly: the temperature's FP64 value or the seed.
    AcceptText { temperature: Option<(String, f64)>, seed: Option<(String, u64)> },
    /// A command line of this program that ends like this.
    Command {
        args: Vec<String>,
        /// Exit code.
        exit: u8,
        /// Stderr, whole; where its lines break does not count.
        stderr: String,
        /// What stderr must not mention, such as a file that must not have been opened.
        stderr_lacks: Option<String>,
    },
}

impl Check {
    /// Refuses checks that could not fail.
    pub(super) fn validate(&self) -> Result<(), String> {
        match self {
            Check::Select { logits, .. } => logits.row().map(|_| ()),
            Check::Replay { logits, tokens, log_probs, .. } => {
                logits.row()?;
                match log_probs {
                    Some(l) if l.len() != tokens.len() => {
                        Err(format!("{} log-probabilities for {} tokens", l.len(), tokens.len()))
                    }
                    _ => Ok(()),
                }
            }
            Check::Parity { ids, tokens, .. } if *ids == 0 || *tokens < 2 => {
                Err("parity needs ids and at least two tokens".into())
            }
            Check::RefuseRow { error, .. } | Check::RefuseText { error, .. }
                if error.trim().is_empty() =>
            {
                Err("a refusal without a message shows nothing; give part of it".into())
            }
            Check::RefuseRow { logits, .. } => row_of_text(logits).map(|_| ()),
            Check::RefuseText { temperature, seed, .. }
                if temperature.is_some() == seed.is_some() =>
            {
                Err("expected exactly one of `temperature` and `seed`".into())
            }
            Check::AcceptText { temperature: None, seed: None } => {
                Err("expected `temperature` or `seed`".into())
            }
            Check::Command { exit, stderr, .. } if stderr.is_empty() => {
                Err(format!("exit code {exit} alone does not tell why; give stderr"))
            }
            Check::Command { exit, .. } if *exit == Exit::Success.code() => {
                Err("this check is about refusals; expected another exit code than 0".into())
            }
            _ => Ok(()),
        }
    }
}
