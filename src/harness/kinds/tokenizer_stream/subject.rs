//! The tokeniser under test, and the independent decoder it is compared with.

use crate::generation::{ControlTokens, TextTokenizer};
use std::path::Path;

type Encode = fn(&TextTokenizer, &str, ControlTokens) -> Result<Vec<u32>, String>;
type Pieces = fn(&TextTokenizer, &[u32], show_control: bool) -> Result<Vec<String>, String>;

/// The product's functions over one vocabulary; tests replace one by a defective one.
pub(super) struct Subject {
    pub(super) tokenizer: TextTokenizer,
    /// Whole-sequence decoding by the `tokenizers` crate: other code than the stream's.
    whole: tokenizers::Tokenizer,
    pub(super) encode: Encode,
    /// The text that each id completes, and what the end flushes.
    pub(super) pieces: Pieces,
}

impl Subject {
    pub(super) fn open(path: &Path) -> Result<Subject, String> {
        Ok(Subject {
            tokenizer: TextTokenizer::open(path).map_err(|e| e.to_string())?,
            whole: tokenizers::Tokenizer::from_file(path).map_err(|e| e.to_string())?,
            encode: |tokenizer, text, control| {
                tokenizer.encode(text, control).map_err(|e| e.to_string())
            },
            pieces: |tokenizer, ids, show_control| {
                let mut stream = tokenizer.stream(show_control);
                let pieces: Result<Vec<String>, _> =
                    ids.iter().map(|id| stream.push(*id)).collect();
                let mut pieces = pieces.map_err(|e| e.to_string())?;
                pieces.push(stream.finish());
                Ok(pieces)
            },
        })
    }

    pub(super) fn decode_whole(&self, ids: &[u32], show_control: bool) -> Result<String, String> {
        self.whole.decode(ids, !show_control).map_err(|e| e.to_string())
    }

    pub(super) fn encode(&self, text: &str, control: ControlTokens) -> Result<Vec<u32>, String> {
        (self.encode)(&self.tokenizer, text, control)
    }

    pub(super) fn pieces(&self, ids: &[u32], show_control: bool) -> Result<Vec<String>, String> {
        (self.pieces)(&self.tokenizer, ids, show_control)
    }
}
