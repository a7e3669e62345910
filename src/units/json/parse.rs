//! The parser.

use super::{JsonMember, JsonNode, JsonValue, Position};

/// Deepest nesting accepted; every known file stays below ten.
const DEPTH_LIMIT: usize = 64;

/// The text is not strict JSON.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{position}: {message}")]
pub struct JsonError {
    pub position: Position,
    pub message: String,
}

/// Parses one JSON value.
///
/// # Errors
/// Names the place and what was expected there: bytes that are no UTF-8, a syntax error, a key
/// given twice (with the line of the first), nesting past 64 levels.
pub fn parse_json(bytes: &[u8]) -> Result<JsonNode, JsonError> {
    let text = std::str::from_utf8(bytes).map_err(|e| {
        let good = std::str::from_utf8(&bytes[..e.valid_up_to()]).unwrap_or_default();
        JsonError { position: position_after(good), message: "not UTF-8 text".into() }
    })?;
    let mut parser = Parser { rest: text, position: Position { line: 1, column: 1 } };
    parser.skip_space();
    let node = parser.value(0)?;
    parser.skip_space();
    match parser.peek() {
        None => Ok(node),
        Some(c) => Err(parser.error(format!("expected the end of the file, found `{}`", show(c)))),
    }
}

fn position_after(text: &str) -> Position {
    let line = text.matches('\n').count() + 1;
    let column = text.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
    Position { line, column }
}

fn show(c: char) -> String {
    c.escape_debug().to_string()
}

struct Parser<'a> {
    rest: &'a str,
    position: Position,
}

impl Parser<'_> {
    fn peek(&self) -> Option<char> {
        self.rest.chars().next()
    }

    fn next(&mut self) -> Option<char> {
        let c = self.peek()?;
        self.rest = &self.rest[c.len_utf8()..];
        if c == '\n' {
            self.position = Position { line: self.position.line + 1, column: 1 };
        } else {
            self.position.column += 1;
        }
        Some(c)
    }

    fn eat(&mut self, c: char) -> bool {
        let found = self.peek() == Some(c);
        if found {
            self.next();
        }
        found
    }

    fn skip_space(&mut self) {
        while matches!(self.peek(), Some(' ' | '\t' | '\n' | '\r')) {
            self.next();
        }
    }

    fn error(&self, message: impl Into<String>) -> JsonError {
        JsonError { position: self.position, message: message.into() }
    }

    fn expected(&self, what: &str) -> JsonError {
        match self.peek() {
            Some(c) => self.error(format!("expected {what}, found `{}`", show(c))),
            None => self.error(format!("expected {what}, found the end of the file")),
        }
    }

    fn value(&mut self, depth: usize) -> Result<JsonNode, JsonError> {
        if depth >= DEPTH_LIMIT {
            return Err(self.error(format!("nested more than {DEPTH_LIMIT} levels deep")));
        }
        let position = self.position;
        let value = match self.peek() {
            Some('{') => self.object(depth)?,
            Some('[') => self.list(depth)?,
            Some('"') => JsonValue::Text(self.text()?),
            Some('-' | '0'..='9') => self.number()?,
            Some(c) if c.is_ascii_alphabetic() => self.word()?,
            _ => return Err(self.expected("a value")),
        };
        Ok(JsonNode { position, value })
    }

    fn word(&mut self) -> Result<JsonValue, JsonError> {
        let length =
            self.rest.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(self.rest.len());
        let value = match &self.rest[..length] {
            "null" => JsonValue::Null,
            "true" => JsonValue::Bool(true),
            "false" => JsonValue::Bool(false),
            "NaN" | "Infinity" => return Err(self.error("JSON has no NaN or Infinity")),
            other => return Err(self.error(format!("expected a value, found `{other}`"))),
        };
        self.rest = &self.rest[length..];
        self.position.column += length;
        Ok(value)
    }

    fn digits(&mut self) -> Result<(), JsonError> {
        if !matches!(self.peek(), Some('0'..='9')) {
            return Err(self.expected("a digit"));
        }
        while matches!(self.peek(), Some('0'..='9')) {
            self.next();
        }
        Ok(())
    }

    fn number(&mut self) -> Result<JsonValue, JsonError> {
        let start = self.rest;
        self.eat('-');
        if self.eat('0') {
            if matches!(self.peek(), Some('0'..='9')) {
                return Err(self.error("a number does not start with 0"));
            }
        } else {
            self.digits()?;
        }
        if self.eat('.') {
            self.digits()?;
        }
        if matches!(self.peek(), Some('e' | 'E')) {
            self.next();
            if matches!(self.peek(), Some('+' | '-')) {
                self.next();
            }
            self.digits()?;
        }
        Ok(JsonValue::Number(start[..start.len() - self.rest.len()].to_owned()))
    }

    fn text(&mut self) -> Result<String, JsonError> {
        self.next();
        let mut out = String::new();
        loop {
            match self.peek() {
                None => return Err(self.expected("the closing `\"`")),
                Some(c) if c < ' ' => {
                    return Err(self.error("a control character in text must be escaped"));
                }
                Some('"') => {
                    self.next();
                    return Ok(out);
                }
                Some('\\') => out.push(self.escape()?),
                Some(c) => {
                    self.next();
                    out.push(c);
                }
            }
        }
    }

    fn escape(&mut self) -> Result<char, JsonError> {
        self.next();
        let simple = match self.peek() {
            Some(c @ ('"' | '\\' | '/')) => c,
            Some('b') => '\u{8}',
            Some('f') => '\u{c}',
            Some('n') => '\n',
            Some('r') => '\r',
            Some('t') => '\t',
            Some('u') => {
                self.next();
                return self.unicode();
            }
            _ => return Err(self.expected("an escape (one of \"\\/bfnrtu)")),
        };
        self.next();
        Ok(simple)
    }

    fn unicode(&mut self) -> Result<char, JsonError> {
        let lone = "a UTF-16 surrogate without its other half";
        let first = self.four_digits()?;
        let code = match first {
            0xd800..=0xdbff => {
                if !(self.eat('\\') && self.eat('u')) {
                    return Err(self.error(lone));
                }
                match self.four_digits()? {
                    second @ 0xdc00..=0xdfff => {
                        0x10000 + ((first - 0xd800) << 10) + (second - 0xdc00)
                    }
                    _ => return Err(self.error(lone)),
                }
            }
            code => code,
        };
        char::from_u32(code).ok_or_else(|| self.error(lone))
    }

    fn four_digits(&mut self) -> Result<u32, JsonError> {
        let mut code = 0;
        for _ in 0..4 {
            match self.peek().and_then(|c| c.to_digit(16)) {
                Some(digit) => code = code * 16 + digit,
                None => return Err(self.expected("four hexadecimal digits")),
            }
            self.next();
        }
        Ok(code)
    }

    fn list(&mut self, depth: usize) -> Result<JsonValue, JsonError> {
        self.next();
        let mut items = Vec::new();
        self.skip_space();
        if self.eat(']') {
            return Ok(JsonValue::List(items));
        }
        loop {
            self.skip_space();
            items.push(self.value(depth + 1)?);
            self.skip_space();
            if self.eat(']') {
                return Ok(JsonValue::List(items));
            }
            if !self.eat(',') {
                return Err(self.expected("`,` or `]`"));
            }
        }
    }

    fn object(&mut self, depth: usize) -> Result<JsonValue, JsonError> {
        self.next();
        let mut members: Vec<JsonMember> = Vec::new();
        let mut seen: std::collections::HashMap<String, usize> = std::collections::HashMap::new();
        self.skip_space();
        if self.eat('}') {
            return Ok(JsonValue::Object(members));
        }
        loop {
            self.skip_space();
            let position = self.position;
            if self.peek() != Some('"') {
                return Err(self.expected("a key in quotes"));
            }
            let key = self.text()?;
            if let Some(line) = seen.insert(key.clone(), position.line) {
                let message = format!("key `{key}` is given twice, first in line {line}");
                return Err(JsonError { position, message });
            }
            self.skip_space();
            if !self.eat(':') {
                return Err(self.expected("`:`"));
            }
            self.skip_space();
            let node = self.value(depth + 1)?;
            members.push(JsonMember { position, key, node });
            self.skip_space();
            if self.eat('}') {
                return Ok(JsonValue::Object(members));
            }
            if !self.eat(',') {
                return Err(self.expected("`,` or `}`"));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::parse_json;

    #[test]
    fn positions_and_digits_survive() {
        let node =
            parse_json(b"{\n  \"a\": [1, 18446744073709551615],\n  \"b\": \"\\ud83d\\ude42\"}")
                .unwrap();
        let a = node.get("a").unwrap();
        assert_eq!(a.position.to_string(), "2:3");
        assert_eq!(a.node.position.to_string(), "2:8");
        assert_eq!(a.node.to_string(), "[1, 18446744073709551615]");
        assert_eq!(node.get("b").unwrap().node.as_str(), Some("\u{1F642}"));
    }

    #[test]
    fn what_is_not_json_is_refused_with_its_place() {
        let deep = "[".repeat(100);
        let cases: [(&[u8], &str); 14] = [
            (b"", "1:1: expected a value, found the end of the file"),
            (b"{\"a\": 1,\n \"a\": 2}", "2:2: key `a` is given twice, first in line 1"),
            (b"{\"a\": 1,}", "1:9: expected a key in quotes, found `}`"),
            (b"{\"a\": NaN}", "1:7: JSON has no NaN or Infinity"),
            (b"[01]", "1:3: a number does not start with 0"),
            (b"[1.]", "1:4: expected a digit, found `]`"),
            (b"[-]", "1:3: expected a digit, found `]`"),
            (b"[1 2]", "1:4: expected `,` or `]`, found `2`"),
            (b"\"\\ud800x\"", "1:8: a UTF-16 surrogate without its other half"),
            (b"\"\\x\"", "1:3: expected an escape (one of \"\\/bfnrtu), found `x`"),
            (b"\"a\nb\"", "1:3: a control character in text must be escaped"),
            (b"[\"\xff\"]", "1:3: not UTF-8 text"),
            (b"{} x", "1:4: expected the end of the file, found `x`"),
            (deep.as_bytes(), "1:65: nested more than 64 levels deep"),
        ];
        for (text, message) in cases {
            assert_eq!(parse_json(text).unwrap_err().to_string(), message);
        }
    }
}
