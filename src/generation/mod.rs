//! Text in, text out: tokeniser, sampling, the generation loop.
//!
//! [`generate()`] drives a [`Model`]: the engine, or a [`scripted`] one in gates. It knows token ids
//! only; [`TextTokenizer`] turns text into ids, and [`TextStream`] turns ids into text as soon as
//! characters are complete. See `docs/generation.md`.

mod engine_model;
mod generate;
mod model;
mod sampler;
pub mod scripted;
mod seed;
mod temperature;
mod tokenizer;

pub use generate::{GenerateError, Generated, Request, Stop, generate};
pub use model::{Model, Session};
pub use sampler::{Choice, LogProbs, Sampler, Sampling};
pub use seed::{Seed, SeedError};
pub use temperature::{Temperature, TemperatureError};
pub use tokenizer::{ControlTokens, TextStream, TextTokenizer, TokenizerError};
