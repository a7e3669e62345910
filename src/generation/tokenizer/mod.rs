//! The checkpoint's tokeniser: text to ids, and ids to text as characters complete.

mod chat;
mod decoder;
mod error;
mod model;
mod stream;
mod text;

#[cfg(test)]
mod tests;

pub use error::TokenizerError;
pub use stream::TextStream;
pub use text::{ControlTokens, TextTokenizer};
