//! Conversations, rendered by the checkpoint's own template.
//!
//! [`ChatTemplate`] finds and runs the template as transformers does: Jinja with trimmed blocks,
//! Python's string methods, `tojson` in the order of the keys and without HTML escapes,
//! `raise_exception`, `strftime_now`. What it renders keeps apart what the template wrote and what
//! the messages said, so that [`TextTokenizer::encode_chat`](super::TextTokenizer::encode_chat)
//! makes control tokens of the former alone. See `docs/generation.md`.

mod conversation;
mod date;
mod environment;
mod error;
mod find;
mod guard;
mod python;
mod template;
#[cfg(test)]
mod tests;

pub use conversation::Conversation;
pub use error::ChatError;
pub use find::end_of_turn;
pub use guard::Rendered;
pub use template::ChatTemplate;
