//! Text in, text out: tokeniser, sampling, the generation loop.
//!
//! [`generate()`] drives a [`Model`]: the engine, or a [`scripted`] one in gates. It knows token ids
//! only; [`TextTokenizer`] turns text into ids, and [`TextStream`] turns ids into text as soon as
//! characters are complete. See `docs/generation.md`.

pub mod chat;
mod engine_model;
mod evaluate;
mod generate;
#[cfg(test)]
mod generate_tests;
mod model;
mod sampler;
pub mod scripted;
mod seed;
mod stop_strings;
mod temperature;
mod tokenizer;
mod truncation;

pub use evaluate::{Agreement, EvalError, Evaluation, Windows, evaluate};
pub use generate::{GenerateError, Generated, Receiver, Request, Stop, generate, generate_all};
pub use model::{Model, Session, StepEntry};
pub use sampler::{Choice, LogProbs, Sampler, Sampling};
pub use seed::{Seed, SeedError};
pub use stop_strings::{Passed, StopStrings};
pub use temperature::{Temperature, TemperatureError};
pub use tokenizer::{ControlTokens, TextStream, TextTokenizer, TokenizerError};
pub use truncation::{Share, TopK, Transform, Truncation, TruncationError};
