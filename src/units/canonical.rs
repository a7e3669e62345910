//! Canonical JSON: one byte sequence per value, so that a digest identifies it.

use super::Digest;
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// A value with exactly one serialisation.
///
/// Keys are sorted by byte, there is no white space, integers are bare, reals are strings in C's
/// `%.16e` (by the schema's type, so a real `1e6` too; −0 is written as 0), and characters outside
/// ASCII are lower-case `\uXXXX` UTF-16 escapes; control characters take JSON's short escapes where
/// they have one. (Python's `json.dumps(…, sort_keys=True, separators=(",", ":"))` writes the same
/// bytes when reals are given as such strings.) Non-finite reals are spelt `"inf"`, `"-inf"`,
/// `"nan"`: they are facts too.
#[derive(Clone, Debug, PartialEq)]
pub enum Canonical {
    Null,
    Bool(bool),
    Int(i128),
    Real(f64),
    Text(String),
    List(Vec<Canonical>),
    Object(BTreeMap<String, Canonical>),
}

impl Canonical {
    /// An object from key and value pairs.
    pub fn object<K: Into<String>>(fields: impl IntoIterator<Item = (K, Canonical)>) -> Canonical {
        Canonical::Object(fields.into_iter().map(|(k, v)| (k.into(), v)).collect())
    }

    /// A list of values.
    pub fn list<T: Into<Canonical>>(items: impl IntoIterator<Item = T>) -> Canonical {
        Canonical::List(items.into_iter().map(Into::into).collect())
    }

    /// The canonical bytes (pure ASCII).
    pub fn encode(&self) -> String {
        let mut out = String::new();
        self.write(&mut out);
        out
    }

    /// SHA-256 of [`Canonical::encode`].
    pub fn digest(&self) -> Digest {
        Digest::of(self.encode().as_bytes())
    }

    /// The same value as ordinary JSON, reals in their canonical spelling.
    pub fn to_json(&self) -> serde_json::Value {
        serde_json::from_str(&self.encode()).expect("canonical JSON is JSON")
    }

    fn write(&self, out: &mut String) {
        match self {
            Canonical::Null => out.push_str("null"),
            Canonical::Bool(b) => out.push_str(if *b { "true" } else { "false" }),
            Canonical::Int(i) => write!(out, "{i}").expect("writing to a string"),
            Canonical::Real(r) => write!(out, "\"{}\"", real(*r)).expect("writing to a string"),
            Canonical::Text(s) => quote(s, out),
            Canonical::List(items) => {
                out.push('[');
                for (i, item) in items.iter().enumerate() {
                    if i > 0 {
                        out.push(',');
                    }
                    item.write(out);
                }
                out.push(']');
            }
            Canonical::Object(fields) => {
                out.push('{');
                for (i, (key, value)) in fields.iter().enumerate() {
                    if i > 0 {
                        out.push(',');
                    }
                    quote(key, out);
                    out.push(':');
                    value.write(out);
                }
                out.push('}');
            }
        }
    }
}

/// C's `%.16e`: a digit, a point, sixteen digits, `e`, a sign and at least two exponent digits.
fn real(value: f64) -> String {
    if value.is_nan() {
        return "nan".into();
    }
    if value.is_infinite() {
        return if value > 0.0 { "inf" } else { "-inf" }.into();
    }
    let value = if value == 0.0 { 0.0 } else { value };
    let text = format!("{value:.16e}");
    let (mantissa, exponent) = text.split_once('e').expect("exponent format has an e");
    let exponent: i32 = exponent.parse().expect("exponent is an integer");
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{mantissa}e{sign}{:02}", exponent.abs())
}

fn quote(text: &str, out: &mut String) {
    out.push('"');
    for unit in text.encode_utf16() {
        match unit {
            0x22 => out.push_str("\\\""),
            0x5c => out.push_str("\\\\"),
            0x08 => out.push_str("\\b"),
            0x09 => out.push_str("\\t"),
            0x0a => out.push_str("\\n"),
            0x0c => out.push_str("\\f"),
            0x0d => out.push_str("\\r"),
            0x20..=0x7f => out.push(char::from(unit as u8)),
            _ => write!(out, "\\u{unit:04x}").expect("writing to a string"),
        }
    }
    out.push('"');
}

macro_rules! from_int {
    ($($t:ty),*) => {$(
        impl From<$t> for Canonical {
            fn from(v: $t) -> Canonical { Canonical::Int(v as i128) }
        }
    )*};
}
from_int!(u8, u32, u64, usize, i32, i64);

impl From<bool> for Canonical {
    fn from(v: bool) -> Canonical {
        Canonical::Bool(v)
    }
}

impl From<f64> for Canonical {
    fn from(v: f64) -> Canonical {
        Canonical::Real(v)
    }
}

impl From<&str> for Canonical {
    fn from(v: &str) -> Canonical {
        Canonical::Text(v.to_owned())
    }
}

impl From<String> for Canonical {
    fn from(v: String) -> Canonical {
        Canonical::Text(v)
    }
}

impl<T: Into<Canonical>> From<Option<T>> for Canonical {
    fn from(v: Option<T>) -> Canonical {
        v.map_or(Canonical::Null, Into::into)
    }
}

#[cfg(test)]
mod tests {
    use super::Canonical;

    #[test]
    fn bytes_are_fixed() {
        let value = Canonical::object([
            ("b", Canonical::from(1e6)),
            ("a", Canonical::list([1u64, u64::MAX])),
            ("é", Canonical::from("\u{1F642}\n\"")),
            ("z", Canonical::from(-0.0)),
        ]);
        assert_eq!(
            value.encode(),
            r#"{"a":[1,18446744073709551615],"b":"1.0000000000000000e+06","z":"0.0000000000000000e+00","\u00e9":"\ud83d\ude42\n\""}"#
        );
    }

    #[test]
    fn exponents_have_two_or_more_digits() {
        assert_eq!(super::real(1e-300), "1.0000000000000000e-300");
        assert_eq!(super::real(-1.5e-5), "-1.5000000000000000e-05");
    }
}
