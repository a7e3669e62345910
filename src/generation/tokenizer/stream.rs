//! Ids to text, one token at a time.

use super::decoder::Piece;
use super::{TextTokenizer, TokenizerError};
use crate::units::mutant;

/// Turns the ids of a sequence into text as soon as characters are complete.
///
/// Bytes of an unfinished character are held back until its last byte arrives, so that a
/// character that spans tokens is given once, whole; bytes that can no longer become a character
/// are given as U+FFFD. The pieces joined are the text of the whole sequence.
///
/// One difference remains for vocabularies with `<0xNN>` tokens: whole-sequence decoding replaces
/// *every* byte of a run of such tokens if any part of the run is broken, which would mean holding
/// back a run of any length. A stream keeps the characters that were complete.
#[derive(Clone, Debug)]
pub struct TextStream<'a> {
    tokenizer: &'a TextTokenizer,
    show_control: bool,
    /// Bytes since the last complete character.
    pending: Vec<u8>,
    /// Leading spaces that are still to be dropped.
    strip: usize,
}

impl<'a> TextStream<'a> {
    pub(super) fn new(tokenizer: &'a TextTokenizer, show_control: bool) -> TextStream<'a> {
        let strip = tokenizer.strip_spaces();
        TextStream { tokenizer, show_control, pending: Vec::new(), strip }
    }

    /// The text that this token completes; often empty inside a character.
    ///
    /// # Errors
    /// [`TokenizerError::UnknownId`]; the stream is unchanged.
    pub fn push(&mut self, id: u32) -> Result<String, TokenizerError> {
        let piece = self.tokenizer.piece(id)?;
        let shown = self.show_control || mutant!("stream_shows_control");
        if !shown && self.tokenizer.is_control(id) {
            return Ok(String::new());
        }
        let text = match piece {
            Piece::Bytes(bytes) => {
                self.pending.extend(bytes);
                if mutant!("stream_splits_characters") { self.flush() } else { self.complete() }
            }
            Piece::Text(text) => self.flush() + &text,
        };
        Ok(self.strip_start(text))
    }

    /// The rest: an incomplete character at the end, as U+FFFD.
    pub fn finish(mut self) -> String {
        let text = self.flush();
        self.strip_start(text)
    }

    /// Takes what is complete out of `pending`.
    fn complete(&mut self) -> String {
        let mut text = String::new();
        loop {
            match std::str::from_utf8(&self.pending) {
                Ok(valid) => {
                    text.push_str(valid);
                    self.pending.clear();
                    return text;
                }
                Err(error) => {
                    let valid: Vec<u8> = self.pending.drain(..error.valid_up_to()).collect();
                    text.push_str(&String::from_utf8_lossy(&valid));
                    // No length means that more bytes may still complete the character.
                    let Some(broken) = error.error_len() else { return text };
                    self.pending.drain(..broken);
                    self.replace(broken, &mut text);
                }
            }
        }
    }

    /// Takes everything out of `pending`.
    fn flush(&mut self) -> String {
        let mut text = self.complete();
        let broken = self.pending.len();
        if broken > 0 {
            self.pending.clear();
            self.replace(broken, &mut text);
        }
        text
    }

    fn replace(&self, broken_bytes: usize, text: &mut String) {
        let count = if self.tokenizer.replaces_each_byte() { broken_bytes } else { 1 };
        text.extend(std::iter::repeat_n(char::REPLACEMENT_CHARACTER, count));
    }

    fn strip_start(&mut self, text: String) -> String {
        if self.strip == 0 || text.is_empty() {
            return text;
        }
        let spaces = text.bytes().take(self.strip).take_while(|b| *b == b' ').count();
        // The first other character ends the stripping.
        self.strip = if spaces == text.len() { self.strip - spaces } else { 0 };
        text[spaces..].to_owned()
    }
}
