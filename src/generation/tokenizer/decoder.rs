//! How the text of a token is written in the vocabulary.

use crate::units::mutant;
use serde_json::Value;

/// How token strings stand for text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Decoder {
    /// Each character stands for a byte (GPT-2's table); a token with any other character stands
    /// for its own UTF-8 bytes.
    ByteLevel,
    /// `<0xNN>` stands for a byte, anything else for its characters after `replace`; up to `strip`
    /// spaces are dropped at the start of a text.
    ByteFallback { replace: Vec<(String, String)>, strip: usize },
}

/// What a token adds to a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Piece {
    /// Bytes that may be a part of a character.
    Bytes(Vec<u8>),
    /// Whole characters.
    Text(String),
}

impl Decoder {
    /// Reads the `decoder` of a `tokenizer.json`.
    ///
    /// # Errors
    /// The name of a decoder, or of a step of one, that is not supported.
    pub(super) fn parse(value: &Value) -> Result<Decoder, String> {
        let name = |step: &Value| step["type"].as_str().unwrap_or("none").to_owned();
        let steps = match value["decoders"].as_array() {
            Some(steps) if name(value) == "Sequence" => steps.as_slice(),
            _ => std::slice::from_ref(value),
        };
        if let [step] = steps
            && name(step) == "ByteLevel"
        {
            return Ok(Decoder::ByteLevel);
        }
        let mut replace = Vec::new();
        let mut strip = 0;
        let mut bytes = false;
        for step in steps {
            match name(step).as_str() {
                "Replace" => {
                    let pattern = step["pattern"]["String"].as_str().ok_or("Replace by regex")?;
                    let content = step["content"].as_str().unwrap_or_default();
                    replace.push((pattern.to_owned(), content.to_owned()));
                }
                "ByteFallback" => bytes = true,
                "Fuse" => {}
                "Strip" if step["content"] == " " && step["stop"] == 0 => {
                    strip = step["start"].as_u64().unwrap_or_default() as usize;
                }
                other => return Err(other.to_owned()),
            }
        }
        if bytes { Ok(Decoder::ByteFallback { replace, strip }) } else { Err(name(value)) }
    }

    /// What the token with this string adds to a text.
    pub(super) fn piece(&self, token: &str) -> Piece {
        match self {
            Decoder::ByteLevel => {
                let bytes: Option<Vec<u8>> = token.chars().map(byte_of_char).collect();
                Piece::Bytes(bytes.unwrap_or_else(|| token.as_bytes().to_vec()))
            }
            Decoder::ByteFallback { replace, .. } => {
                let hexadecimal = token.strip_prefix("<0x").and_then(|t| t.strip_suffix('>'));
                let byte = hexadecimal.filter(|h| h.len() == 2);
                match byte.and_then(|h| u8::from_str_radix(h, 16).ok()) {
                    Some(byte) => Piece::Bytes(vec![byte]),
                    None => Piece::Text(
                        replace.iter().fold(token.to_owned(), |t, (from, to)| t.replace(from, to)),
                    ),
                }
            }
        }
    }
}

/// The byte that a character of a byte-level vocabulary stands for.
///
/// Printable Latin-1 bytes stand for themselves; the others, in ascending order, are written as
/// the characters from U+0100 on.
fn byte_of_char(c: char) -> Option<u8> {
    let code = c as u32;
    match code {
        0x21..=0x7e | 0xa1..=0xac | 0xae..=0xff => Some(code as u8),
        0x100..=0x120 => Some((code - 0x100) as u8),
        0x121..=0x142 if mutant!("byte_table_shifted") => Some((code - 0x121 + 0x80) as u8),
        0x121..=0x142 => Some((code - 0x121 + 0x7f) as u8),
        0x143 => Some(0xad),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn every_byte_has_one_character() {
        let mut bytes: Vec<u8> =
            (0..=0x143).filter_map(char::from_u32).filter_map(byte_of_char).collect();
        bytes.sort_unstable();
        assert_eq!(bytes, (0..=255).collect::<Vec<u8>>());
        assert_eq!(byte_of_char('Ġ'), Some(b' '));
        assert_eq!(byte_of_char('Ċ'), Some(b'\n'));
        assert_eq!(byte_of_char('▁'), None);
    }

    #[test]
    fn decoders_are_recognised_or_refused_by_name() {
        let byte_level = json!({"type": "ByteLevel", "use_regex": true});
        assert_eq!(Decoder::parse(&byte_level), Ok(Decoder::ByteLevel));
        let sequence = json!({"type": "Sequence", "decoders": [byte_level]});
        assert_eq!(Decoder::parse(&sequence), Ok(Decoder::ByteLevel));
        let fallback = json!({"type": "Sequence", "decoders": [
            {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
            {"type": "ByteFallback"}, {"type": "Fuse"},
            {"type": "Strip", "content": " ", "start": 1, "stop": 0}]});
        let replace = vec![("▁".to_owned(), " ".to_owned())];
        assert_eq!(Decoder::parse(&fallback), Ok(Decoder::ByteFallback { replace, strip: 1 }));
        assert_eq!(Decoder::parse(&json!({"type": "WordPiece"})), Err("WordPiece".into()));
        assert_eq!(Decoder::parse(&Value::Null), Err("none".into()));
    }

    #[test]
    fn tokens_with_foreign_characters_are_their_own_bytes() {
        let piece = Decoder::ByteLevel.piece("<｜end▁of▁text｜>");
        assert_eq!(piece, Piece::Bytes("<｜end▁of▁text｜>".as_bytes().to_vec()));
        assert_eq!(Decoder::ByteLevel.piece("Ġthe"), Piece::Bytes(b" the".to_vec()));
    }
}
