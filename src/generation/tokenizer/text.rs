//! `tokenizer.json` of a checkpoint.

use super::decoder::{Decoder, Piece};
use super::model::{self, Parts};
use super::{TextStream, TokenizerError};
use crate::units::mutant;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::OnceLock;

/// Largest accepted `tokenizer.json`. The largest public ones are below 40 MB.
const LIMIT_BYTES: u64 = 256 << 20;

/// What text that spells a control token means (`<|im_end|>` typed by a user).
///
/// Control tokens are the added tokens that the tokeniser marks as special.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum ControlTokens {
    /// Characters like any other: a user cannot end a turn or speak for the system by typing.
    #[default]
    AsText,
    /// The control token, as templates and trusted prompts need it.
    Parse,
}

/// A control token.
#[derive(Clone, Debug)]
pub(super) struct Control {
    pub(super) text: String,
    /// Whether white space before and behind it is part of it.
    pub(super) takes_left: bool,
    pub(super) takes_right: bool,
}

/// A checkpoint's tokeniser.
#[derive(Debug)]
pub struct TextTokenizer {
    /// Reads control tokens as text.
    pub(super) literal: Parts,
    /// Reads control tokens as themselves; made when first asked for.
    parsing: OnceLock<Parts>,
    decoder: Decoder,
    /// Control tokens by id.
    pub(super) control: BTreeMap<u32, Control>,
    ids: usize,
}

impl TextTokenizer {
    /// Opens `tokenizer.json` at `path`.
    ///
    /// Truncation and padding that the file asks for are switched off: a prompt is never cut or
    /// filled silently.
    ///
    /// # Errors
    /// [`TokenizerError`] if the file cannot be read, is no tokeniser, or writes text in a way
    /// that cannot be streamed here.
    pub fn open(path: &Path) -> Result<TextTokenizer, TokenizerError> {
        let read_error = |source| TokenizerError::Read { path: path.into(), source };
        let found_bytes = std::fs::metadata(path).map_err(read_error)?.len();
        if found_bytes > LIMIT_BYTES {
            return Err(TokenizerError::TooLarge {
                path: path.into(),
                found_bytes,
                limit_bytes: LIMIT_BYTES,
            });
        }
        let bytes = std::fs::read(path).map_err(read_error)?;
        let malformed = |message: String| TokenizerError::Malformed { path: path.into(), message };
        let mut literal = model::read(&bytes).map_err(malformed)?;
        literal.with_padding(None);
        literal.with_truncation(None).map_err(|e| malformed(e.to_string()))?;
        literal.set_encode_special_tokens(!mutant!("control_text_is_control"));
        let decoder = serde_json::to_value(literal.get_decoder())
            .map_err(|e| malformed(e.to_string()))
            .map(|value| Decoder::parse(&value))?
            .map_err(|found| TokenizerError::Decoder { path: path.into(), found })?;
        let added = literal.get_added_tokens_decoder();
        let added_ids = added.keys().max().map_or(0, |id| *id as usize + 1);
        let ids = literal.get_model().ids.max(added_ids);
        let control = added
            .into_iter()
            .filter(|(_, token)| token.special)
            .map(|(id, token)| {
                let (takes_left, takes_right) = (token.lstrip, token.rstrip);
                (id, Control { text: token.content, takes_left, takes_right })
            })
            .collect();
        Ok(TextTokenizer { literal, parsing: OnceLock::new(), decoder, control, ids })
    }

    /// One more than the largest id: ids from here on are no tokens.
    pub fn ids(&self) -> usize {
        self.ids
    }

    /// Whether the id is a control token.
    pub fn is_control(&self, id: u32) -> bool {
        self.control.contains_key(&id)
    }

    /// The control tokens whose spelling occurs in `text`, in order of id.
    pub fn control_tokens_spelt_in(&self, text: &str) -> Vec<&str> {
        self.control_tokens().filter(|c| text.contains(c)).collect()
    }

    /// How the control tokens are spelt, in order of id.
    pub fn control_tokens(&self) -> impl Iterator<Item = &str> {
        self.control.values().map(|c| c.text.as_str())
    }

    /// The id of a token by its spelling in the vocabulary.
    pub fn id_of(&self, token: &str) -> Option<u32> {
        self.literal.token_to_id(token)
    }

    /// The ids of a text, with the tokens that the checkpoint puts around one (often a BOS).
    ///
    /// # Errors
    /// [`TokenizerError::Encode`], or [`TokenizerError::ControlTokenInText`] if the text yields a
    /// control token although it is to be read as text.
    pub fn encode(&self, text: &str, control: ControlTokens) -> Result<Vec<u32>, TokenizerError> {
        let tokenizer = match control {
            ControlTokens::AsText => &self.literal,
            ControlTokens::Parse => self.parsing(),
        };
        let encoding = model::encoding(tokenizer, text, true)?;
        if control == ControlTokens::AsText && !mutant!("control_text_is_control") {
            // The mask marks what the checkpoint put around the text; the rest came out of it.
            let from_text = encoding.get_ids().iter().zip(encoding.get_special_tokens_mask());
            for (id, mask) in from_text {
                if let (0, Some(token)) = (mask, self.control.get(id)) {
                    return Err(TokenizerError::ControlTokenInText {
                        id: *id,
                        token: token.text.clone(),
                    });
                }
            }
        }
        Ok(encoding.get_ids().to_vec())
    }

    /// The tokeniser that reads control tokens as themselves.
    pub(super) fn parsing(&self) -> &Parts {
        self.parsing.get_or_init(|| {
            let mut parsing = self.literal.clone();
            parsing.set_encode_special_tokens(false);
            parsing
        })
    }

    /// The ids of a text and, apart from them, those that the checkpoint puts before one (often a
    /// BOS, often none). Control tokens are text; what the checkpoint puts behind a text is left out.
    ///
    /// # Errors
    /// As [`TextTokenizer::encode`].
    pub fn encode_apart(&self, text: &str) -> Result<(Vec<u32>, Vec<u32>), TokenizerError> {
        let encoding = model::encoding(&self.literal, text, true)?;
        let mask = encoding.get_special_tokens_mask();
        let before = mask.iter().take_while(|m| **m == 1).count();
        let after = mask[before..].iter().rev().take_while(|m| **m == 1).count();
        let ids = encoding.get_ids();
        Ok((ids[..before].to_vec(), ids[before..ids.len() - after].to_vec()))
    }

    /// The text of a whole sequence; bytes that form no character become U+FFFD. Control tokens
    /// are spelt out if `show_control`, else left out.
    ///
    /// # Errors
    /// [`TokenizerError::UnknownId`].
    pub fn decode(&self, ids: &[u32], show_control: bool) -> Result<String, TokenizerError> {
        let mut stream = self.stream(show_control);
        let mut text = String::new();
        for id in ids {
            text += &stream.push(*id)?;
        }
        Ok(text + &stream.finish())
    }

    /// A stream that turns ids into text as soon as characters are complete.
    pub fn stream(&self, show_control: bool) -> TextStream<'_> {
        TextStream::new(self, show_control)
    }

    pub(super) fn piece(&self, id: u32) -> Result<Piece, TokenizerError> {
        let added = self.literal.get_added_vocabulary().simple_id_to_token(id);
        match added.or_else(|| self.literal.id_to_token(id)) {
            Some(token) => Ok(self.decoder.piece(&token)),
            None => Err(TokenizerError::UnknownId { id, ids: self.ids }),
        }
    }

    pub(super) fn strip_spaces(&self) -> usize {
        match self.decoder {
            Decoder::ByteLevel => 0,
            Decoder::ByteFallback { strip, .. } => strip,
        }
    }

    /// Whether each byte that forms no character becomes a U+FFFD of its own.
    pub(super) fn replaces_each_byte(&self) -> bool {
        matches!(self.decoder, Decoder::ByteFallback { .. })
    }
}
