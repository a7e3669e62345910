//! Values as Python writes them: `str`, `repr` and `json.dumps`.

use minijinja::value::{Value, ValueKind};
use minijinja::{Error, ErrorKind};
use std::fmt::Write;

/// Deepest nesting that is written.
const DEPTH_LIMIT: usize = 128;

/// `str(value)`: what `{{ … }}` prints.
pub(super) fn str_of(value: &Value) -> Result<String, Error> {
    match value.kind() {
        ValueKind::Undefined => Ok(String::new()),
        ValueKind::String => Ok(value.as_str().unwrap_or_default().to_owned()),
        ValueKind::None | ValueKind::Bool | ValueKind::Number | ValueKind::Seq | ValueKind::Map => {
            let mut out = String::new();
            repr(value, &mut out, 0)?;
            Ok(out)
        }
        _ => Ok(value.to_string()),
    }
}

fn repr(value: &Value, out: &mut String, depth: usize) -> Result<(), Error> {
    check_depth(depth)?;
    match value.kind() {
        ValueKind::None => out.push_str("None"),
        ValueKind::Bool => out.push_str(if value.is_true() { "True" } else { "False" }),
        ValueKind::Number => number(value, out),
        ValueKind::String => repr_text(value.as_str().unwrap_or_default(), out),
        ValueKind::Seq => {
            out.push('[');
            for (i, item) in value.try_iter()?.enumerate() {
                out.push_str(if i == 0 { "" } else { ", " });
                repr(&item, out, depth + 1)?;
            }
            out.push(']');
        }
        ValueKind::Map => {
            out.push('{');
            for (i, key) in value.try_iter()?.enumerate() {
                out.push_str(if i == 0 { "" } else { ", " });
                repr(&key, out, depth + 1)?;
                out.push_str(": ");
                repr(&value.get_item(&key)?, out, depth + 1)?;
            }
            out.push('}');
        }
        _ => out.push_str(&value.to_string()),
    }
    Ok(())
}

/// Python quotes with `'`, unless that alone occurs in the text.
fn repr_text(text: &str, out: &mut String) {
    let quote = if text.contains('\'') && !text.contains('"') { '"' } else { '\'' };
    out.push(quote);
    for c in text.chars() {
        match c {
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\\' => out.push_str("\\\\"),
            c if c == quote => out.extend(['\\', c]),
            c if (c as u32) < 0x20 || c as u32 == 0x7f => {
                // Writing to a string cannot fail.
                let _ = write!(out, "\\x{:02x}", c as u32);
            }
            c => out.push(c),
        }
    }
    out.push(quote);
}

/// Integers in full, floats in Python's shortest form (`1.0`, `1e-05`, `1e+16`).
fn number(value: &Value, out: &mut String) {
    if value.is_integer() {
        out.push_str(&value.to_string());
        return;
    }
    let real = f64::try_from(value.clone()).unwrap_or(f64::NAN);
    if real.is_nan() {
        out.push_str("NaN");
    } else if real.is_infinite() {
        out.push_str(if real > 0.0 { "Infinity" } else { "-Infinity" });
    } else if real != 0.0 && !(1e-4..1e16).contains(&real.abs()) {
        let text = format!("{real:e}");
        let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
        let (sign, digits) = match exponent.strip_prefix('-') {
            Some(digits) => ('-', digits),
            None => ('+', exponent),
        };
        let _ = write!(out, "{mantissa}e{sign}{digits:0>2}");
    } else {
        let text = real.to_string();
        out.push_str(&text);
        if !text.contains('.') {
            out.push_str(".0");
        }
    }
}

/// How `json.dumps` lays its text out.
pub(super) struct JsonStyle {
    /// Spaces a level, or everything on one line.
    pub(super) indent: Option<usize>,
    pub(super) item_separator: String,
    pub(super) key_separator: String,
    pub(super) sort_keys: bool,
    pub(super) ensure_ascii: bool,
}

impl JsonStyle {
    /// `json.dumps(value)` by this style.
    pub(super) fn dumps(&self, value: &Value) -> Result<String, Error> {
        let mut out = String::new();
        self.write(value, &mut out, 0)?;
        Ok(out)
    }

    fn write(&self, value: &Value, out: &mut String, depth: usize) -> Result<(), Error> {
        check_depth(depth)?;
        match value.kind() {
            ValueKind::None => out.push_str("null"),
            ValueKind::Bool => out.push_str(if value.is_true() { "true" } else { "false" }),
            ValueKind::Number => number(value, out),
            ValueKind::String => self.text(value.as_str().unwrap_or_default(), out),
            ValueKind::Seq | ValueKind::Iterable => {
                let items: Vec<Value> = value.try_iter()?.collect();
                self.group(out, depth, '[', ']', items.len(), |out, i| {
                    self.write(&items[i], out, depth + 1)
                })?;
            }
            ValueKind::Map => {
                let mut keys: Vec<Value> = value.try_iter()?.collect();
                if self.sort_keys {
                    keys.sort_by_key(ToString::to_string);
                }
                self.group(out, depth, '{', '}', keys.len(), |out, i| {
                    self.text(&key_text(&keys[i])?, out);
                    out.push_str(&self.key_separator);
                    self.write(&value.get_item(&keys[i])?, out, depth + 1)
                })?;
            }
            kind => {
                let problem = format!("tojson cannot write a value of kind {kind}");
                return Err(Error::new(ErrorKind::BadSerialization, problem));
            }
        }
        Ok(())
    }

    fn group(
        &self,
        out: &mut String,
        depth: usize,
        open: char,
        close: char,
        len: usize,
        mut item: impl FnMut(&mut String, usize) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let line = |out: &mut String, depth: usize| {
            if let Some(indent) = self.indent {
                out.push('\n');
                out.extend(std::iter::repeat_n(' ', indent * depth));
            }
        };
        out.push(open);
        for i in 0..len {
            if i > 0 {
                out.push_str(&self.item_separator);
            }
            line(out, depth + 1);
            item(out, i)?;
        }
        if len > 0 {
            line(out, depth);
        }
        out.push(close);
        Ok(())
    }

    fn text(&self, text: &str, out: &mut String) {
        out.push('"');
        for c in text.chars() {
            match c {
                '"' => out.push_str("\\\""),
                '\\' => out.push_str("\\\\"),
                '\n' => out.push_str("\\n"),
                '\r' => out.push_str("\\r"),
                '\t' => out.push_str("\\t"),
                '\u{8}' => out.push_str("\\b"),
                '\u{c}' => out.push_str("\\f"),
                c if (c as u32) < 0x20 || (self.ensure_ascii && !c.is_ascii()) => {
                    for unit in c.encode_utf16(&mut [0; 2]) {
                        let _ = write!(out, "\\u{unit:04x}");
                    }
                }
                c => out.push(c),
            }
        }
        out.push('"');
    }
}

/// Keys of other kinds become text as `json.dumps` makes it.
fn key_text(key: &Value) -> Result<String, Error> {
    Ok(match key.kind() {
        ValueKind::String => key.as_str().unwrap_or_default().to_owned(),
        ValueKind::None => "null".to_owned(),
        ValueKind::Bool => key.is_true().to_string(),
        ValueKind::Number => {
            let mut out = String::new();
            number(key, &mut out);
            out
        }
        kind => {
            let problem = format!("tojson cannot write a key of kind {kind}");
            return Err(Error::new(ErrorKind::BadSerialization, problem));
        }
    })
}

fn check_depth(depth: usize) -> Result<(), Error> {
    match depth {
        0..=DEPTH_LIMIT => Ok(()),
        _ => Err(Error::new(
            ErrorKind::BadSerialization,
            format!("values nest deeper than {DEPTH_LIMIT} levels"),
        )),
    }
}
