//! The checks, one trial each.

use super::reference::Reference;
use super::subject::Subject;
use crate::generation::ControlTokens::{AsText, Parse};
use std::fmt::Debug;

/// One question about a tokeniser.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Check {
    /// Ids of texts.
    Encode,
    /// Ids of texts where the checkpoint adds a BOS.
    EncodeBos,
    /// Ids of rendered conversations.
    EncodeChat,
    /// Texts that spell control tokens stay text, and come back whole.
    ControlTokenAsText,
    /// Texts of ids, with control tokens and without.
    Decode,
    /// Ids that are no valid text, and the bytes they stand for.
    DecodeLossy,
    /// The text that each id completes.
    Stream,
    /// Every reference sequence cut after every id: pieces and flushed tail are the text of the
    /// whole, and no unfinished character comes early.
    CutAnywhere,
    /// How many ids there are, and which are control tokens.
    Vocabulary,
}

impl Check {
    pub(super) const ALL: [Check; 9] = [
        Check::Encode,
        Check::EncodeBos,
        Check::EncodeChat,
        Check::ControlTokenAsText,
        Check::Decode,
        Check::DecodeLossy,
        Check::Stream,
        Check::CutAnywhere,
        Check::Vocabulary,
    ];

    /// The name in trials.
    pub(super) fn name(self) -> &'static str {
        match self {
            Check::Encode => "encode",
            Check::EncodeBos => "encode_bos",
            Check::EncodeChat => "encode_chat",
            Check::ControlTokenAsText => "control_token_as_text",
            Check::Decode => "decode",
            Check::DecodeLossy => "decode_lossy",
            Check::Stream => "stream",
            Check::CutAnywhere => "cut_anywhere",
            Check::Vocabulary => "vocabulary",
        }
    }

    /// How many sequences were compared, or the first difference.
    pub(super) fn run(
        self,
        reference: &Reference,
        plain: &Subject,
        bos: &Subject,
    ) -> Result<usize, String> {
        match self {
            Check::Encode => {
                each(&reference.encode, |e| equal(&e.text, &e.ids, &plain.encode(&e.text, Parse)?))
            }
            Check::EncodeBos => each(&reference.encode, |e| {
                equal(&e.text, &e.ids_bos_variant, &bos.encode(&e.text, Parse)?)
            }),
            Check::EncodeChat => {
                each(&reference.chat, |c| equal(&c.text, &c.ids, &plain.encode(&c.text, Parse)?))
            }
            Check::ControlTokenAsText => {
                each(&reference.encode, |e| as_text(reference, plain, &e.text))
            }
            Check::Decode => each(&reference.encode, |e| {
                equal(&e.text, &e.decoded, &plain.pieces(&e.ids, true)?.concat())?;
                equal(&e.text, &e.decoded_skip_special, &plain.pieces(&e.ids, false)?.concat())
            }),
            Check::DecodeLossy => each(&reference.decode_lossy, |l| {
                let bytes = bytes_of_hex(&l.bytes_hex)?;
                let what = format!("ids {:?}", l.ids);
                equal(&what, &l.decoded, &plain.pieces(&l.ids, true)?.concat())?;
                equal(&what, &String::from_utf8_lossy(&bytes).into_owned(), &l.decoded)
            }),
            Check::Stream => each(&reference.encode, |e| {
                let mut expected = e.stream.clone();
                expected.push(String::new());
                equal(&e.text, &expected, &plain.pieces(&e.ids, true)?)
            }),
            Check::CutAnywhere => {
                let valid = reference.encode.iter().map(|e| (&e.ids, true));
                let lossy = reference.decode_lossy.iter().map(|l| (&l.ids, false));
                let sequences: Vec<_> = valid.chain(lossy).collect();
                each(&sequences, |(ids, valid)| cut_anywhere(plain, ids, *valid))
            }
            Check::Vocabulary => {
                equal("the number of ids", &reference.vocab_size, &plain.tokenizer.ids())?;
                for id in 0..reference.vocab_size as u32 {
                    let special = reference.special_tokens.values().any(|s| *s == id);
                    let what = format!("whether id {id} is a control token");
                    equal(&what, &special, &plain.tokenizer.is_control(id))?;
                }
                Ok(reference.vocab_size)
            }
        }
    }
}

/// The text alone, with every control token appended and with each inside a word, gives ids
/// without control tokens; the reference's normalised text comes back.
fn as_text(reference: &Reference, plain: &Subject, text: &str) -> Result<(), String> {
    let spelt: Vec<&str> = reference.special_tokens.keys().map(String::as_str).collect();
    for text in
        [text.to_owned(), format!("{text}{}", spelt.concat()), format!("a{}b", spelt.join("c"))]
    {
        let ids = plain.encode(&text, AsText)?;
        if let Some(id) = ids.iter().find(|id| reference.special_tokens.values().any(|s| s == *id))
        {
            return Err(format!("{text:?} read as text gave control token {id}"));
        }
        // What a normaliser changes it changes either way.
        let expected = plain.decode_whole(&plain.encode(&text, Parse)?, true)?;
        equal(&text, &expected, &plain.pieces(&ids, true)?.concat())?;
    }
    Ok(())
}

fn cut_anywhere(plain: &Subject, ids: &[u32], valid: bool) -> Result<(), String> {
    for end in 0..=ids.len() {
        for show_control in [true, false] {
            let cut = &ids[..end];
            let pieces = plain.pieces(cut, show_control)?;
            let what = format!("the first {end} of ids {ids:?}");
            equal(&what, &plain.decode_whole(cut, show_control)?, &pieces.concat())?;
            let before_the_end = pieces[..end].concat();
            if valid && before_the_end.contains(char::REPLACEMENT_CHARACTER) {
                return Err(format!("{what}: an unfinished character came early"));
            }
        }
    }
    Ok(())
}

fn each<T>(items: &[T], mut check: impl FnMut(&T) -> Result<(), String>) -> Result<usize, String> {
    items.iter().try_for_each(&mut check).map(|()| items.len())
}

fn equal<T: PartialEq + Debug>(of: &str, expected: &T, found: &T) -> Result<(), String> {
    if expected == found {
        Ok(())
    } else {
        Err(format!("{of:?}: expected {expected:?}, found {found:?}"))
    }
}

fn bytes_of_hex(hex: &str) -> Result<Vec<u8>, String> {
    let digit = |i: usize| hex.get(i..i + 2).and_then(|h| u8::from_str_radix(h, 16).ok());
    (0..hex.len())
        .step_by(2)
        .map(|i| digit(i).ok_or_else(|| format!("bytes_hex `{hex}` is not hexadecimal")))
        .collect()
}
