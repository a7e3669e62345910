//! `tokenizer_stream`: ids, texts and streamed pieces against a reference made by another
//! implementation.

mod check;
mod gate;
mod reference;
mod subject;
#[cfg(test)]
mod tests;

pub(super) use gate::TokenizerStream;
