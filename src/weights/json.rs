//! A strict JSON reader for untrusted headers.
//!
//! It walks the text once and builds nothing, so memory is bounded by what the caller keeps. Unlike
//! a general reader it refuses duplicate keys (even with equal values, even when one of them is
//! spelt with escapes), keeps whole numbers up to 2^64-1 exact, and says at which byte a rule was
//! broken.

use super::Rule;
use super::error::quoted;
use std::borrow::Cow;
use std::collections::HashSet;

const DEPTH_LIMIT: usize = 32;

/// A broken rule at a byte of the text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct JsonError {
    pub(super) offset: usize,
    pub(super) rule: Rule,
    pub(super) expected: Option<String>,
    pub(super) found: String,
    /// Set by callers that know which entry they were reading.
    pub(super) tensor: Option<String>,
}

impl JsonError {
    /// Names the tensor whose entry was being read, unless a deeper caller did.
    pub(super) fn in_tensor(mut self, name: &str) -> JsonError {
        self.tensor.get_or_insert_with(|| name.to_owned());
        self
    }
}

/// The reader's place in a text.
pub(super) struct Reader<'a> {
    text: &'a str,
    at: usize,
    depth: usize,
}

impl<'a> Reader<'a> {
    pub(super) fn new(text: &'a str) -> Reader<'a> {
        Reader { text, at: 0, depth: 0 }
    }

    /// An error at the next token.
    pub(super) fn error(&mut self, rule: Rule, found: impl Into<String>) -> JsonError {
        self.space();
        self.error_at(self.at, rule, found)
    }

    pub(super) fn error_at(&self, at: usize, rule: Rule, found: impl Into<String>) -> JsonError {
        JsonError { offset: at, rule, expected: None, found: found.into(), tensor: None }
    }

    /// Where the next token starts.
    pub(super) fn offset(&mut self) -> usize {
        self.space();
        self.at
    }

    /// Reads an object, calling `each` at the value of every key.
    pub(super) fn object(
        &mut self,
        mut each: impl FnMut(&mut Reader<'a>, Cow<'a, str>, usize) -> Result<(), JsonError>,
    ) -> Result<(), JsonError> {
        self.open(b'{', "an object")?;
        let mut seen = HashSet::new();
        if !self.take(b'}') {
            loop {
                let key_at = self.offset();
                let key = self.string("a key")?;
                self.expect(b':', "`:`")?;
                if !seen.insert(key.clone()) {
                    return Err(self.error_at(key_at, Rule::DuplicateKey, quoted(&key) + " again"));
                }
                each(self, key, key_at)?;
                if self.take(b'}') {
                    break;
                }
                self.expect(b',', "`,` or `}`")?;
            }
        }
        self.depth -= 1;
        Ok(())
    }

    /// Reads an array, calling `each` at every element.
    pub(super) fn array(
        &mut self,
        mut each: impl FnMut(&mut Reader<'a>, usize) -> Result<(), JsonError>,
    ) -> Result<(), JsonError> {
        self.open(b'[', "an array")?;
        if !self.take(b']') {
            for index in 0.. {
                each(self, index)?;
                if self.take(b']') {
                    break;
                }
                self.expect(b',', "`,` or `]`")?;
            }
        }
        self.depth -= 1;
        Ok(())
    }

    /// Reads a string; `what` names it in an error.
    pub(super) fn string(&mut self, what: &str) -> Result<Cow<'a, str>, JsonError> {
        if self.peek() != Some(b'"') {
            return Err(self.unexpected(what));
        }
        self.at += 1;
        let start = self.at;
        let mut unescaped: Option<String> = None;
        let mut run = start;
        loop {
            match self.text.as_bytes().get(self.at) {
                None => return Err(self.error_at(self.at, Rule::Json, "an unterminated string")),
                Some(b'"') => break,
                Some(b'\\') => {
                    let text = self.text;
                    let built = unescaped.get_or_insert_with(String::new);
                    built.push_str(&text[run..self.at]);
                    built.push(self.escape()?);
                    run = self.at;
                }
                Some(0..0x20) => {
                    return Err(self.error_at(self.at, Rule::Json, "a bare control character"));
                }
                Some(_) => self.at += 1,
            }
        }
        let tail = &self.text[run..self.at];
        self.at += 1;
        Ok(match unescaped {
            None => Cow::Borrowed(tail),
            Some(built) => Cow::Owned(built + tail),
        })
    }

    /// Reads a whole number from 0 to 2^64-1.
    pub(super) fn whole(&mut self) -> Result<u64, JsonError> {
        let at = self.offset();
        let Some(b'-' | b'0'..=b'9') = self.peek() else {
            let found = self.token_name();
            return Err(self.error_at(at, Rule::WholeNumber, found));
        };
        let number = self.number()?;
        number.parse().map_err(|_| self.error_at(at, Rule::WholeNumber, cut(number)))
    }

    /// Reads any value and forgets it.
    pub(super) fn skip(&mut self) -> Result<(), JsonError> {
        match self.peek() {
            Some(b'{') => self.object(|reader, _, _| reader.skip()),
            Some(b'[') => self.array(|reader, _| reader.skip()),
            Some(b'"') => self.string("a string").map(drop),
            Some(b'-' | b'0'..=b'9') => self.number().map(drop),
            _ => {
                let rest = &self.text[self.at..];
                match ["true", "false", "null"].into_iter().find(|w| rest.starts_with(w)) {
                    Some(word) => {
                        self.at += word.len();
                        Ok(())
                    }
                    None => Err(self.unexpected("a value")),
                }
            }
        }
    }

    /// Requires that only white space is left.
    pub(super) fn end(&mut self) -> Result<(), JsonError> {
        match self.peek() {
            None => Ok(()),
            Some(_) => Err(self.unexpected("the end of the text")),
        }
    }

    /// The first byte of the next token.
    pub(super) fn peek(&mut self) -> Option<u8> {
        self.space();
        self.text.as_bytes().get(self.at).copied()
    }

    /// What the next token is, in words.
    pub(super) fn token_name(&mut self) -> String {
        match self.peek() {
            None => "the end of the text".into(),
            Some(b'{') => "an object".into(),
            Some(b'[') => "an array".into(),
            Some(b'"') => "a string".into(),
            Some(b'-' | b'0'..=b'9') => "a number".into(),
            Some(b't' | b'f') => "a boolean".into(),
            Some(b'n') => "null".into(),
            Some(_) => {
                let next = self.text[self.at..].chars().next().unwrap_or_default();
                format!("`{}`", next.escape_debug())
            }
        }
    }

    fn number(&mut self) -> Result<&'a str, JsonError> {
        let start = self.at;
        let bytes = self.text.as_bytes();
        let digits = |at: &mut usize| {
            let from = *at;
            while bytes.get(*at).is_some_and(u8::is_ascii_digit) {
                *at += 1;
            }
            *at - from
        };
        let mut at = start + usize::from(bytes[start] == b'-');
        let leading = bytes.get(at) == Some(&b'0');
        let whole = digits(&mut at);
        let mut valid = whole == 1 || (whole > 1 && !leading);
        if bytes.get(at) == Some(&b'.') {
            at += 1;
            valid &= digits(&mut at) > 0;
        }
        if let Some(b'e' | b'E') = bytes.get(at) {
            at += 1 + usize::from(matches!(bytes.get(at + 1), Some(b'+' | b'-')));
            valid &= digits(&mut at) > 0;
        }
        let number = &self.text[start..at];
        self.at = at;
        if valid { Ok(number) } else { Err(self.error_at(start, Rule::Json, cut(number))) }
    }

    fn escape(&mut self) -> Result<char, JsonError> {
        let start = self.at;
        let simple = match self.text.as_bytes().get(start + 1) {
            Some(b'"') => '"',
            Some(b'\\') => '\\',
            Some(b'/') => '/',
            Some(b'b') => '\u{8}',
            Some(b'f') => '\u{c}',
            Some(b'n') => '\n',
            Some(b'r') => '\r',
            Some(b't') => '\t',
            Some(b'u') => return self.unicode_escape(),
            _ => return Err(self.error_at(start, Rule::Json, "an unknown escape")),
        };
        self.at += 2;
        Ok(simple)
    }

    fn unicode_escape(&mut self) -> Result<char, JsonError> {
        let start = self.at;
        let first = self.hex_unit();
        let second = match first {
            Some(0xd800..0xdc00) => self.hex_unit(),
            _ => None,
        };
        let units = [first.unwrap_or(0xdfff), second.unwrap_or(0)];
        let units = if second.is_some() { &units[..] } else { &units[..1] };
        match char::decode_utf16(units.iter().copied()).next() {
            Some(Ok(character)) => Ok(character),
            _ => Err(self.error_at(start, Rule::Json, "an invalid \\u escape")),
        }
    }

    fn hex_unit(&mut self) -> Option<u16> {
        let digits = self.text.as_bytes().get(self.at..self.at + 6)?;
        if &digits[..2] != b"\\u" || !digits[2..].iter().all(u8::is_ascii_hexdigit) {
            return None;
        }
        let unit = u16::from_str_radix(&self.text[self.at + 2..self.at + 6], 16).ok()?;
        self.at += 6;
        Some(unit)
    }

    fn open(&mut self, bracket: u8, what: &str) -> Result<(), JsonError> {
        self.expect(bracket, what)?;
        self.depth += 1;
        if self.depth > DEPTH_LIMIT {
            let found = format!("level {}", self.depth);
            return Err(self.error_at(self.at - 1, Rule::JsonDepth, found));
        }
        Ok(())
    }

    fn expect(&mut self, byte: u8, what: &str) -> Result<(), JsonError> {
        if self.take(byte) { Ok(()) } else { Err(self.unexpected(what)) }
    }

    fn take(&mut self, byte: u8) -> bool {
        let found = self.peek() == Some(byte);
        self.at += usize::from(found);
        found
    }

    fn unexpected(&mut self, expected: &str) -> JsonError {
        let found = self.token_name();
        JsonError { expected: Some(expected.to_owned()), ..self.error(Rule::Json, found) }
    }

    fn space(&mut self) {
        while let Some(b' ' | b'\n' | b'\r' | b'\t') = self.text.as_bytes().get(self.at) {
            self.at += 1;
        }
    }
}

/// A number as found, cut to a length that fits a message.
fn cut(number: &str) -> String {
    if number.len() <= 40 {
        number.to_owned()
    } else {
        format!("{}… ({} digits)", &number[..40], number.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn accepts(text: &str) -> Result<(), JsonError> {
        let mut reader = Reader::new(text);
        reader.skip()?;
        reader.end()
    }

    #[test]
    fn agrees_with_serde_json_about_what_is_json() {
        let texts = [
            "{}",
            " [1, 2] ",
            "01",
            "-",
            "-0",
            "1.",
            "1.5e+3",
            "1e",
            "\"\\u00e9\"",
            "\"\\ud83d\\ude00\"",
            "\"\\ud83d\"",
            "\"\\udc00\"",
            "\"\\x\"",
            "\"a",
            "\"\t\"",
            "[1,]",
            "{\"a\":1,}",
            "{,}",
            "tru",
            "true",
            "nulll",
            "{\"a\" 1}",
            "[1 2]",
            "",
            "+1",
            ".5",
            "[[]]",
            "\"\\u12",
            "{\"a\":}",
            "\u{a0}1",
        ];
        for text in texts {
            let theirs = serde_json::from_str::<serde_json::Value>(text).is_ok();
            assert_eq!(accepts(text).is_ok(), theirs, "{text}");
        }
    }

    #[test]
    fn a_key_spelt_with_escapes_is_the_same_key() {
        let error = accepts(r#"{"a": 1, "\u0061": 1}"#).unwrap_err();
        assert_eq!((error.rule, error.offset), (Rule::DuplicateKey, 9));
    }

    #[test]
    fn whole_numbers_are_exact_or_refused() {
        let whole = |text| Reader::new(text).whole();
        assert_eq!(whole("18446744073709551615").ok(), Some(u64::MAX));
        for text in ["18446744073709551616", "-1", "1.0", "1e3", "\"1\"", "null"] {
            assert_eq!(whole(text).unwrap_err().rule, Rule::WholeNumber, "{text}");
        }
    }

    #[test]
    fn nesting_is_bounded() {
        assert!(accepts(&("[".repeat(32) + &"]".repeat(32))).is_ok());
        assert_eq!(accepts(&"[".repeat(1_000_000)).unwrap_err().rule, Rule::JsonDepth);
    }
}
