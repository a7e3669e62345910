//! Canonical JSON and the ids of a manifest, from the manifest's text.

use super::sha256_hex;
use std::collections::BTreeMap;
use std::iter::Peekable;
use std::str::Chars;

/// A JSON value; numbers as they are spelt.
enum Value {
    Word(String),
    Text(String),
    List(Vec<Value>),
    Object(BTreeMap<Vec<u8>, (String, Value)>),
}

/// The canonical form of a JSON text.
///
/// # Errors
/// What is wrong with the text: bad syntax, a key given twice, or a number that is no integer.
pub fn canonical_json(text: &str) -> Result<String, String> {
    let mut out = String::new();
    write(&parse(text)?, &mut out);
    Ok(out)
}

/// The id of every block of a manifest: key → (stated, derived from the block's fields).
///
/// # Errors
/// As [`canonical_json`], or the text holds no blocks.
pub fn derive_ids(manifest: &str) -> Result<BTreeMap<String, (String, String)>, String> {
    let mut ids = BTreeMap::new();
    blocks(&parse(manifest)?, &mut ids);
    if ids.is_empty() { Err("no block with `fields` was found".into()) } else { Ok(ids) }
}

/// A block is an object that has `fields` and one key that ends in `_id`.
fn blocks(value: &Value, ids: &mut BTreeMap<String, (String, String)>) {
    let Value::Object(members) = value else { return };
    let Some((_, fields)) = members.get(b"fields".as_slice()) else {
        members.values().for_each(|(_, v)| blocks(v, ids));
        return;
    };
    let mut canonical = String::new();
    write(fields, &mut canonical);
    for (key, value) in members.values() {
        if let (true, Value::Text(stated)) = (key.ends_with("_id"), value) {
            ids.insert(key.clone(), (stated.clone(), sha256_hex(canonical.as_bytes())));
        }
    }
}

fn write(value: &Value, out: &mut String) {
    match value {
        Value::Word(word) => out.push_str(word),
        Value::Text(text) => quote(text, out),
        Value::List(items) => {
            let items: Vec<String> = items.iter().map(written).collect();
            *out += &format!("[{}]", items.join(","));
        }
        Value::Object(members) => {
            let members: Vec<String> = members
                .values()
                .map(|(key, value)| {
                    let mut member = String::new();
                    quote(key, &mut member);
                    member + ":" + &written(value)
                })
                .collect();
            *out += &format!("{{{}}}", members.join(","));
        }
    }
}

fn written(value: &Value) -> String {
    let mut out = String::new();
    write(value, &mut out);
    out
}

fn quote(text: &str, out: &mut String) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\u{8}' => out.push_str("\\b"),
            '\t' => out.push_str("\\t"),
            '\n' => out.push_str("\\n"),
            '\u{c}' => out.push_str("\\f"),
            '\r' => out.push_str("\\r"),
            ' '..='\u{7f}' => out.push(c),
            _ if (c as u32) < 0x1_0000 => *out += &format!("\\u{:04x}", c as u32),
            _ => {
                // Two surrogates of ten bits each.
                let offset = c as u32 - 0x1_0000;
                *out += &format!("\\u{:04x}", 0xd800 + (offset >> 10));
                *out += &format!("\\u{:04x}", 0xdc00 + (offset & 0x3ff));
            }
        }
    }
    out.push('"');
}

fn parse(text: &str) -> Result<Value, String> {
    let mut rest = text.chars().peekable();
    let found = value(&mut rest)?;
    space(&mut rest);
    rest.next().map_or(Ok(found), |c| Err(format!("`{c}` after the end of the value")))
}

fn space(rest: &mut Peekable<Chars<'_>>) {
    while rest.next_if(|c| c.is_ascii_whitespace()).is_some() {}
}

fn value(rest: &mut Peekable<Chars<'_>>) -> Result<Value, String> {
    space(rest);
    match rest.peek().copied() {
        Some('"') => Ok(Value::Text(string(rest)?)),
        Some('[') => {
            let mut items = Vec::new();
            sequence(rest, ']', |rest| {
                items.push(value(rest)?);
                Ok(())
            })?;
            Ok(Value::List(items))
        }
        Some('{') => {
            let mut members = BTreeMap::new();
            sequence(rest, '}', |rest| {
                space(rest);
                let key = string(rest)?;
                space(rest);
                expect(rest, ':')?;
                let member = (key.clone(), value(rest)?);
                match members.insert(key.clone().into_bytes(), member) {
                    None => Ok(()),
                    Some(_) => Err(format!("the key `{key}` is given twice")),
                }
            })?;
            Ok(Value::Object(members))
        }
        _ => word(rest),
    }
}

/// `open item, item close`; the opening character is the next one.
fn sequence(
    rest: &mut Peekable<Chars<'_>>,
    close: char,
    mut item: impl FnMut(&mut Peekable<Chars<'_>>) -> Result<(), String>,
) -> Result<(), String> {
    rest.next();
    space(rest);
    if rest.next_if_eq(&close).is_some() {
        return Ok(());
    }
    loop {
        item(rest)?;
        space(rest);
        match rest.next() {
            Some(',') => {}
            Some(c) if c == close => return Ok(()),
            found => return Err(format!("expected `,` or `{close}`, found {found:?}")),
        }
    }
}

fn expect(rest: &mut Peekable<Chars<'_>>, c: char) -> Result<(), String> {
    match rest.next() {
        Some(found) if found == c => Ok(()),
        found => Err(format!("expected `{c}`, found {found:?}")),
    }
}

fn word(rest: &mut Peekable<Chars<'_>>) -> Result<Value, String> {
    let mut word = String::new();
    while let Some(c) = rest.next_if(|c| c.is_ascii_alphanumeric() || "+-.".contains(*c)) {
        word.push(c);
    }
    let digits = word.strip_prefix('-').unwrap_or(&word);
    let integer = !digits.is_empty()
        && digits.bytes().all(|b| b.is_ascii_digit())
        && (digits == "0" || !digits.starts_with('0'))
        && word != "-0";
    if integer || matches!(word.as_str(), "true" | "false" | "null") {
        Ok(Value::Word(word))
    } else {
        Err(format!("`{word}` is neither an integer nor true, false or null"))
    }
}

fn string(rest: &mut Peekable<Chars<'_>>) -> Result<String, String> {
    expect(rest, '"')?;
    let mut units: Vec<u16> = Vec::new();
    loop {
        let c = rest.next().ok_or("a string without an end")?;
        let c = match c {
            '"' => break,
            '\\' => match rest.next().ok_or("a string without an end")? {
                'u' => {
                    let digits: String = rest.by_ref().take(4).collect();
                    units.push(u16::from_str_radix(&digits, 16).map_err(|e| e.to_string())?);
                    continue;
                }
                'b' => '\u{8}',
                'f' => '\u{c}',
                'n' => '\n',
                'r' => '\r',
                't' => '\t',
                other => other,
            },
            c => c,
        };
        units.extend(c.encode_utf16(&mut [0; 2]).iter());
    }
    String::from_utf16(&units).map_err(|e| e.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::Canonical;

    #[test]
    fn agrees_with_the_product_on_awkward_text() {
        let texts =
            ["", "é", "🙂", "a\"b\\c/", "\u{1}\n\r\t\u{8}\u{c}\u{7f}\u{80}\u{ffff}", "日本"];
        let value = Canonical::object(texts.iter().enumerate().map(|(i, t)| {
            let list = Canonical::List(vec![Canonical::from(*t), i.into(), Canonical::Null]);
            (format!("{t}{i}"), list)
        }));
        let pretty = serde_json::to_string_pretty(&value.to_json()).unwrap();
        assert_eq!(canonical_json(&pretty).unwrap(), value.encode());
        assert_eq!(sha256_hex(value.encode().as_bytes()), value.digest().to_string());
    }

    #[test]
    fn keys_are_ordered_by_byte() {
        // U+FF61 sorts before U+10000 by byte, after it by UTF-16 unit.
        let text = "{\"\u{10000}\":1,\"\u{ff61}\":2,\"a\":3,\"B\":4}";
        let canonical = canonical_json(text).unwrap();
        assert_eq!(canonical, r#"{"B":4,"a":3,"\uff61":2,"\ud800\udc00":1}"#);
    }

    #[test]
    fn what_no_digest_covers_is_refused() {
        for text in ["1.5", "1e3", "-0", "01", "{\"a\":1,\"a\":1}", "[1 2]", "\"a", "1 1", "nul"] {
            assert!(canonical_json(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_wrong_id_shows() {
        let text = r#"{"a": {"fields": {"x": 1}, "a_id": "00"}, "p": {"b": {"fields": {}, "b_id":
            "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"}}}"#;
        let ids = derive_ids(text).unwrap();
        assert_ne!(ids["a_id"].0, ids["a_id"].1);
        assert_eq!(ids["b_id"].0, ids["b_id"].1);
        assert!(derive_ids("{}").is_err());
    }
}
